//! What Proxmox lets go of as time passes: the logs of tasks. A world of an hour keeps everything; one of many days must not.

use jiff::Timestamp;

use super::Pve;

impl Pve {
    /// Forgets tasks that had ended before `moment`, and what was asked before, whose entries in the audit keep their numbers. Births stay: who made a machine
    /// matters for as long as it stands.
    pub fn forget_before(&self, moment: Timestamp) {
        let mut state = self.state();
        let state = &mut *state;
        let old = state.audit.partition_point(|entry| entry.at < moment);
        state.audit.drain(..old);
        state.audit_forgotten += old;
        let ended = |time: i64| time < moment.as_second();
        state
            .tasks
            .retain(|_, task| !task.end.as_ref().is_some_and(|end| ended(end.time)));
        let tasks = &state.tasks;
        state.task_order.retain(|upid| tasks.contains_key(upid));
    }
}
