//! What policies want to be given again with their next question: bytes in the Ledger, for each pool, kind and policy.

use crate::facts::{PolicyKind, PolicyMember, PolicyRef, PolicyUse};
use crate::ids::PoolName;
use crate::ledger::{MOST_STATE_BYTES, policy_state, set_policy_state};
use crate::plan::question::States;
use crate::plan::report::Severity;
use crate::planning::Planning;

impl Planning<'_> {
    /// The pool's policy, and of several that decide together each with what it returned last.
    pub(in crate::planning) fn with_states(
        &self,
        pool: &PoolName,
        policy: &PolicyUse,
    ) -> PolicyUse {
        let mut policy = policy.clone();
        for PolicyMember {
            policy: PolicyRef { kind, name },
            state,
            ..
        } in &mut policy.members
        {
            *state = policy_state(&self.ledger, pool, *kind, name).state;
        }
        policy
    }

    pub(in crate::planning) fn keep_states(
        &mut self,
        pool: &PoolName,
        kind: PolicyKind,
        states: States,
    ) {
        for (policy, state) in states {
            if let Some(bytes) = self.acceptable(pool, &policy, Some(state)) {
                let mut row = policy_state(&self.ledger, pool, kind, &policy);
                row.state = bytes;
                set_policy_state(&mut self.ledger, row);
            }
        }
    }

    /// What a policy wants to be given again next time, if it is not too much.
    fn acceptable(
        &mut self,
        pool: &PoolName,
        policy: &str,
        state: Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let bytes = state?;
        if bytes.len() <= MOST_STATE_BYTES {
            return Some(bytes);
        }
        let about = format!("NodePool/{pool}");
        let message = format!(
            "policy {policy} returned a state of {} bytes, but kproxide keeps at most {MOST_STATE_BYTES}. The old state stays",
            bytes.len()
        );
        self.tick.found(Severity::Warning, about, message);
        None
    }
}
