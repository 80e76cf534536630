//! Tasks: work that goes on after the answer, with a UPID, a log and an exit status.

use std::future::Future;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::Pve;
use super::access::Identity;
use super::answer::{Answer, Refusal, Reply};
use super::locks::Killed;
use super::serve::Call;

pub(crate) struct Task {
    pub(crate) upid: String,
    pub(crate) node: String,
    pub(crate) pid: u32,
    pub(crate) pstart: u64,
    pub(crate) starttime: i64,
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) owner: Identity,
    pub(crate) log: Vec<String>,
    warnings: u32,
    pub(crate) end: Option<End>,
    work: Option<AbortHandle>,
    killed: Killed,
}

/// How a task ended.
pub(crate) struct End {
    pub(crate) time: i64,
    pub(crate) status: String,
}

/// The hand of a running task on its own log.
#[derive(Clone)]
pub(crate) struct Worker {
    pve: Pve,
    upid: String,
    pub(crate) killed: Killed,
}

impl Worker {
    pub(crate) fn log(&self, line: &str) {
        if let Some(task) = self.pve.state().tasks.get_mut(&self.upid) {
            task.log.push(line.to_owned());
        }
    }

    /// A warning: the task ends with `WARNINGS: n` instead of `OK`.
    pub(crate) fn warn(&self, text: &str) {
        if let Some(task) = self.pve.state().tasks.get_mut(&self.upid) {
            task.log.push(format!("WARN: {text}"));
            task.warnings += 1;
        }
    }

    fn finish(&self, result: Result<(), String>) {
        let time = self.pve.clock().unix_seconds();
        if let Some(task) = self.pve.state().tasks.get_mut(&self.upid) {
            task.finish(result, time);
        }
    }
}

impl Pve {
    /// Starts a task on `node` and returns its UPID. The work goes on whatever becomes of the request.
    pub(crate) fn start_task<Work, Running>(
        &self,
        node: &str,
        kind: &str,
        id: &str,
        owner: &Identity,
        work: Work,
    ) -> Reply
    where
        Work: FnOnce(Pve, Worker) -> Running,
        Running: Future<Output = Result<(), String>> + Send + 'static,
    {
        let starttime = self.clock().unix_seconds();
        let killed = Killed::default();
        let upid = {
            let mut state = self.state();
            let pid = state.next_pid();
            // Hundredths of a second since the server came up.
            let up = state
                .nodes
                .get(node)
                .map_or(state.started, |node| node.up_since);
            let pstart = 100_000 + up.elapsed().as_millis() as u64 / 10;
            let upid = format!(
                "UPID:{node}:{pid:08X}:{pstart:08X}:{starttime:08X}:{kind}:{id}:{}:",
                owner.full()
            );
            let task = Task {
                upid: upid.clone(),
                node: node.to_owned(),
                pid,
                pstart,
                starttime,
                kind: kind.to_owned(),
                id: id.to_owned(),
                owner: owner.clone(),
                log: Vec::new(),
                warnings: 0,
                end: None,
                work: None,
                killed: killed.clone(),
            };
            state.tasks.insert(upid.clone(), task);
            state.task_order.push(upid.clone());
            upid
        };
        let worker = Worker {
            pve: self.clone(),
            upid: upid.clone(),
            killed,
        };
        let work = work(self.clone(), worker.clone());
        let pve = self.clone();
        let handle = self.spawn(async move {
            // The new process takes a moment to begin: two requests for one VMID can both be answered by then.
            pve.take(pve.timings().fork, "task", &worker.upid).await;
            let result = work.await;
            worker.finish(result);
        });
        if let Some(task) = self.state().tasks.get_mut(&upid) {
            task.work = Some(handle);
        }
        Value::from(upid).into()
    }

    /// The task in which a hypervisor that has booted starts its VMs one after the other. Here it starts none, and ends with `done`.
    pub fn startall(&self, node: &str, done: impl Future<Output = ()> + Send + 'static) {
        let root = Identity {
            user: "root@pam".to_owned(),
            token: None,
        };
        self.start_task(node, "startall", "", &root, |_, _| async move {
            done.await;
            Ok(())
        });
    }
}

impl Task {
    fn finish(&mut self, result: Result<(), String>, time: i64) {
        let status = match result {
            Ok(()) if self.warnings == 0 => "OK".to_owned(),
            Ok(()) => format!("WARNINGS: {}", self.warnings),
            Err(text) => text.replace('\n', " ").trim_end().to_owned(),
        };
        self.log.push(match status.as_str() {
            "OK" => "TASK OK".to_owned(),
            status if status.starts_with("WARNINGS: ") => format!("TASK {status}"),
            status => format!("TASK ERROR: {status}"),
        });
        self.end = Some(End { time, status });
        self.work = None;
    }

    /// Kills the processes of a task: what it did stays done, what it locked with a file lock becomes free, and a lock of
    /// the cluster file system stays.
    pub(crate) fn kill(&mut self, time: i64, status: &str) {
        self.killed.store(true, Ordering::Relaxed);
        if let Some(work) = self.work.take() {
            work.abort();
        }
        if self.end.is_none() {
            self.end = Some(End {
                time,
                status: status.to_owned(),
            });
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.end.is_none()
    }

    fn common_json(&self) -> Value {
        let mut json = json!({
            "upid": self.upid,
            "node": self.node,
            "pid": self.pid,
            "pstart": self.pstart,
            "starttime": self.starttime,
            "type": self.kind,
            "id": self.id,
            "user": self.owner.user,
        });
        if let Some(token) = &self.owner.token {
            json["tokenid"] = token.as_str().into();
        }
        json
    }

    fn status_json(&self) -> Value {
        let mut json = self.common_json();
        json["status"] = if self.is_running() {
            "running"
        } else {
            "stopped"
        }
        .into();
        if let Some(end) = &self.end {
            json["exitstatus"] = end.status.as_str().into();
        }
        json
    }

    fn list_json(&self) -> Value {
        let mut json = self.common_json();
        if let Some(end) = &self.end {
            json["endtime"] = end.time.into();
            json["status"] = end.status.as_str().into();
        }
        json
    }
}

/// `GET /nodes/{node}/tasks/{upid}/status`
pub(crate) async fn status(call: Call) -> Answer {
    call.with_task(|task| Ok(task.status_json().into()))
}

/// `GET /nodes/{node}/tasks/{upid}/log`
pub(crate) async fn log(call: Call) -> Answer {
    let start = call.params.integer("start").unwrap_or(0).max(0) as usize;
    let limit = call.params.integer("limit").unwrap_or(50).max(0) as usize;
    // 0 means no limit.
    let limit = if limit == 0 { usize::MAX } else { limit };
    call.with_task(|task| {
        let numbered = task.log.iter().enumerate().skip(start).take(limit);
        let lines = numbered
            .map(|(at, line)| json!({"n": at + 1, "t": line}))
            .collect();
        Ok(Reply::page(lines, task.log.len()))
    })
}

/// `DELETE /nodes/{node}/tasks/{upid}`: ends the task's processes.
pub(crate) async fn stop(call: Call) -> Answer {
    let time = call.pve.clock().unix_seconds();
    call.with_task(|task| {
        task.kill(time, "unexpected status");
        Ok(Reply::null())
    })
}

/// `GET /nodes/{node}/tasks`, newest first.
pub(crate) async fn list(call: Call) -> Answer {
    let params = &call.params;
    let source = params.get("source").unwrap_or("archive");
    let start = params.integer("start").unwrap_or(0).max(0) as usize;
    let limit = params.integer("limit").unwrap_or(50).max(0) as usize;
    let state = call.pve.state();
    let sees_all = state.may(&call.who, &format!("/nodes/{}", call.node), "Sys.Audit");
    let wanted = |task: &&Task| {
        let of_source = match source {
            "active" => task.is_running(),
            "archive" => !task.is_running(),
            _ => true,
        };
        task.node == call.node
            && of_source
            && (sees_all || is_own(task, &call.who))
            && params
                .get("typefilter")
                .is_none_or(|kind| task.kind == kind)
            && params.get("vmid").is_none_or(|vmid| task.id == vmid)
            && params
                .get("userfilter")
                .is_none_or(|user| task.owner.full().contains(user))
            && params
                .integer("since")
                .is_none_or(|since| task.starttime >= since)
            && params
                .integer("until")
                .is_none_or(|until| task.starttime <= until)
            && (params.flag("errors") != Some(true)
                || task.end.as_ref().is_some_and(|end| end.status != "OK"))
    };
    let newest_first = state
        .task_order
        .iter()
        .rev()
        .filter_map(|upid| state.tasks.get(upid));
    let found: Vec<&Task> = newest_first.filter(wanted).collect();
    let total = found.len();
    let page = found
        .into_iter()
        .skip(start)
        .take(limit)
        .map(Task::list_json)
        .collect();
    Ok(Reply::page(page, total))
}

/// `GET /cluster/tasks`: the last tasks of every server.
pub(crate) async fn cluster(call: Call) -> Answer {
    const PER_NODE: usize = 25;
    let state = call.pve.state();
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    let mut found = Vec::new();
    for task in state
        .task_order
        .iter()
        .rev()
        .filter_map(|upid| state.tasks.get(upid))
    {
        let visible = state.may(&call.who, &format!("/nodes/{}", task.node), "Sys.Audit")
            || is_own(task, &call.who);
        let count = counts.entry(&task.node).or_default();
        if !visible || *count >= PER_NODE {
            continue;
        }
        *count += 1;
        let mut json = task.list_json();
        if let Some(object) = json.as_object_mut() {
            object.remove("pid");
            object.remove("pstart");
        }
        json["saved"] = if task.is_running() { "0" } else { "1" }.into();
        found.push(json);
    }
    Ok(Value::from(found).into())
}

/// A user sees the tasks of their tokens; a token sees only its own.
fn is_own(task: &Task, who: &Identity) -> bool {
    task.owner == *who || (who.token.is_none() && task.owner.user == who.user)
}

impl Call {
    fn with_task(&self, act: impl FnOnce(&mut Task) -> Answer) -> Answer {
        let upid = self.var("upid");
        if !is_upid(upid) {
            return Err(Refusal::parameter("upid", "unable to parse worker upid"));
        }
        let mut state = self.pve.state();
        let sees_all = state.may(&self.who, &format!("/nodes/{}", self.node), "Sys.Audit");
        let Some(task) = state.tasks.get_mut(upid) else {
            return Err(Refusal::parameter("upid", "no such task"));
        };
        if !sees_all && !is_own(task, &self.who) {
            return Err(Refusal::Forbidden(format!(
                "/nodes/{}, Sys.Audit",
                self.node
            )));
        }
        act(task)
    }
}

/// `UPID:node:pid:pstart:starttime:type:id:user:`
fn is_upid(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let hex = |part: &str| {
        part.len() >= 8 && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    parts.len() == 9
        && parts[0] == "UPID"
        && parts[2..5].iter().all(|part| hex(part))
        && !parts[7].is_empty()
}

#[cfg(test)]
mod tests {
    use super::is_upid;

    #[test]
    fn upids_are_recognized() {
        assert!(is_upid(
            "UPID:pve1:00001798:0004118B:6B00E484:qmclone:9000:aut@pve!full:"
        ));
        assert!(is_upid(
            "UPID:pve1:00006E07:00059BBE:6B00E876:imgcopy::aut@pve!full:"
        ));
        assert!(!is_upid("garbage"));
    }
}
