//! Tasks: what Proxmox does in the background after it has answered with a UPID.
//!
//! A task that ended is [`Outcome::Ok`], has warnings, or failed with a text that [`super::classify`] reads. Of a task
//! that was killed or forgotten the result is unknown ([`Outcome::Unknown`]): look at the VM.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::error::{Error, Meaning, Reaction};
use super::request::{Call, Params};
use super::{classify, types};
use kproxide_common::foreign;

/// The first pause between two looks; no task that allocates a disk is faster.
const POLL_FIRST: Duration = Duration::from_secs(1);

/// The longest pause.
const POLL_LAST: Duration = Duration::from_secs(5);

/// How many of the newest tasks are searched for a lost one.
const SEARCHED_TASKS: u32 = 50;

/// The name of a task, unique in its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upid {
    text: String,
    /// The hypervisor that runs it; it alone knows its state.
    pub hypervisor: String,
    /// `qmclone`, `qmstart`, ….
    pub kind: String,
    /// Mostly a VMID; for `qmclone` that of the *source*.
    pub id: String,
    /// Seconds since 1970 by the hypervisor's clock.
    pub started_at: i64,
}

impl Upid {
    /// As Proxmox wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for Upid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

/// Not a UPID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a Proxmox task ID")]
pub struct NotAUpid(String);

impl std::str::FromStr for Upid {
    type Err = NotAUpid;

    /// `UPID:<hypervisor>:<pid>:<pstart>:<starttime>:<type>:<id>:<user>:`, numbers in hex.
    fn from_str(text: &str) -> Result<Self, NotAUpid> {
        let refused = || NotAUpid(text.to_owned());
        let parts: Vec<&str> = text.split(':').collect();
        let [
            "UPID",
            hypervisor,
            pid,
            pstart,
            started_at,
            kind,
            id,
            user,
            ..,
        ] = parts[..]
        else {
            return Err(refused());
        };
        let hex = |number: &str| {
            // A sign would be read as part of the number.
            let is_hex = number.bytes().all(|byte| byte.is_ascii_hexdigit());
            let read = i64::from_str_radix(number, 16).ok();
            read.filter(|_| is_hex).ok_or_else(refused)
        };
        hex(pid)?;
        hex(pstart)?;
        let has_odd = text.contains(|c: char| c.is_whitespace() || c.is_control());
        if hypervisor.is_empty() || kind.is_empty() || user.is_empty() || has_odd {
            return Err(refused());
        }
        Ok(Upid {
            text: text.to_owned(),
            hypervisor: hypervisor.to_owned(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            started_at: hex(started_at)?,
        })
    }
}

impl<'de> Deserialize<'de> for Upid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Not ended (within the time given).
    Running,
    /// Done.
    Ok,
    /// Done, but something was left undone; after a destroy, volumes.
    Warnings(u32),
    /// Failed.
    Failed {
        /// What the text means.
        meaning: Meaning,
        /// Proxmox's words.
        text: String,
    },
    /// Unknown: the task was killed, its hypervisor restarted, or Proxmox has forgotten it.
    Unknown(String),
}

impl Outcome {
    /// Reads an `exitstatus`.
    pub fn of_exit_status(text: &str) -> Outcome {
        if text == "OK" {
            return Outcome::Ok;
        }
        if let Some(count) = text.strip_prefix("WARNINGS: ") {
            return Outcome::Warnings(count.trim().parse().unwrap_or(1));
        }
        let meaning = classify::task(text);
        if matches!(meaning, Meaning::TaskInterrupted | Meaning::TaskUnknown) {
            Outcome::Unknown(foreign::said(text))
        } else {
            let text = foreign::said(text);
            Outcome::Failed { meaning, text }
        }
    }
}

#[derive(Deserialize)]
struct Status {
    #[serde(default, deserialize_with = "types::text")]
    status: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    exitstatus: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    upid: Upid,
    #[serde(default)]
    endtime: Option<i64>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default, deserialize_with = "types::text")]
    t: Option<String>,
}

/// Two lines for each lock that a clone waited for, its source's and its own, and the one that names it.
const CLONE_LOG_LINES: u64 = 5;

impl Client {
    /// How a task stands now.
    ///
    /// # Errors
    /// The hypervisor could not be asked. A task that it does not know is [`Outcome::Unknown`].
    pub async fn task_outcome(&self, upid: &Upid) -> Result<Outcome, Error> {
        let path = ["nodes", &upid.hypervisor, "tasks", upid.as_str(), "status"];
        let status: Status = match self.fetch(Call::get(&path).protected()).await {
            Ok(status) => status,
            Err(error) if error.meaning == Meaning::TaskUnknown => {
                return Ok(Outcome::Unknown(error.chain()));
            }
            Err(error) => return Err(error),
        };
        Ok(match (status.status.as_deref(), status.exitstatus) {
            (Some("running"), _) => Outcome::Running,
            (_, Some(text)) => Outcome::of_exit_status(&text),
            (_, None) => Outcome::Unknown("the task ended without an exit status".to_owned()),
        })
    }

    /// Follows a task to its end, or for `patience`: then it is [`Outcome::Running`].
    ///
    /// # Errors
    /// The hypervisor could not be asked and that will not pass by itself, or `patience` ended with the question open.
    pub async fn follow(&self, upid: &Upid, patience: Duration) -> Result<Outcome, Error> {
        let give_up_at = Instant::now() + patience;
        let mut pause = POLL_FIRST;
        loop {
            let outcome = self.task_outcome(upid).await;
            let settled = match &outcome {
                Ok(Outcome::Running) => false,
                Ok(
                    Outcome::Ok
                    | Outcome::Warnings(_)
                    | Outcome::Failed { .. }
                    | Outcome::Unknown(_),
                ) => true,
                Err(error) => matches!(
                    error.reaction(),
                    Reaction::GiveUp | Reaction::Freeze | Reaction::LookFirst
                ),
            };
            let now = Instant::now();
            if settled || now >= give_up_at {
                return outcome;
            }
            sleep(pause.min(give_up_at - now)).await;
            pause = (pause * 3 / 2).min(POLL_LAST);
        }
    }

    /// The last `lines` lines of a task's log, oldest first.
    ///
    /// # Errors
    /// The hypervisor could not be asked.
    pub async fn task_log(&self, upid: &Upid, lines: u64) -> Result<Vec<String>, Error> {
        let (start, total) = self.log_lines(upid, 0, lines).await?;
        let total = total.unwrap_or(0);
        if total <= lines {
            return Ok(start);
        }
        Ok(self.log_lines(upid, total - lines, lines).await?.0)
    }

    async fn log_lines(
        &self,
        upid: &Upid,
        start: u64,
        limit: u64,
    ) -> Result<(Vec<String>, Option<u64>), Error> {
        let path = ["nodes", &upid.hypervisor, "tasks", upid.as_str(), "log"];
        let call = Call::get(&path)
            .protected()
            .params(Params::new().with("start", start).with("limit", limit));
        let (lines, total): (Vec<Line>, _) = self.fetch_counted(call).await?;
        let lines = lines.into_iter().filter_map(|line| line.t).collect();
        Ok((lines, total))
    }

    /// Finds the task of a clone whose answer was lost: the newest one from `template` to `vmid` on `hypervisor`.
    ///
    /// `since` (seconds since 1970, by the hypervisor's clock) keeps out older clones of a reused VMID.
    ///
    /// # Errors
    /// The hypervisor could not be asked.
    pub async fn find_clone(
        &self,
        hypervisor: &str,
        template: u32,
        vmid: u32,
        since: Option<i64>,
    ) -> Result<Option<Upid>, Error> {
        let params = Params::new()
            .with("typefilter", "qmclone")
            .with("vmid", template)
            .with("source", "all")
            .with("limit", SEARCHED_TASKS)
            .with_some("since", since);
        let call = Call::get(&["nodes", hypervisor, "tasks"]).params(params);
        let mut tasks: Vec<Listed> = self.fetch(call).await?;
        tasks.sort_by_key(|task| std::cmp::Reverse(task.upid.started_at));
        let suffix = format!("with ID {vmid}");
        for task in tasks {
            // Proxmox: only one of the log's first lines names the new VM. Those before it tell of locks that it waited for.
            let first = self.log_lines(&task.upid, 0, CLONE_LOG_LINES).await?.0;
            let mut first = first.iter();
            if first.any(|line| line.trim_end().ends_with(&suffix)) {
                return Ok(Some(task.upid));
            }
        }
        Ok(None)
    }

    /// The kind of a task that runs now and may start a VM: one of its own, such as `qmstart`, or the `startall` of a hypervisor that has just booted, which
    /// starts one after the other. `None`: there is none.
    ///
    /// # Errors
    /// The hypervisor could not be asked.
    pub async fn running_task(&self, hypervisor: &str, vmid: u32) -> Result<Option<String>, Error> {
        let params = Params::new()
            .with("source", "active")
            .with("limit", ACTIVE_TASKS);
        let call = Call::get(&["nodes", hypervisor, "tasks"]).params(params);
        let tasks: Vec<Listed> = self.fetch(call).await?;
        // Proxmox: those that have ended stay among the active ones for a while.
        let running = tasks.into_iter().filter(|task| task.endtime.is_none());
        let vmid = vmid.to_string();
        let mut its = running.filter(|task| task.upid.id == vmid || task.upid.kind == STARTALL);
        Ok(its.next().map(|task| task.upid.kind))
    }
}

/// Those of all VMs of a server at one time, and the last that have ended. Proxmox cuts the list there.
const ACTIVE_TASKS: u32 = 1000;

/// The ID of such a task is empty: it names no VM.
const STARTALL: &str = "startall";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_upid_tells_where_to_ask() {
        let upid: Upid = "UPID:pve1:00001798:0004118B:6B00E484:qmclone:9000:aut@pve!full:"
            .parse()
            .unwrap();
        assert_eq!(
            (
                upid.hypervisor.as_str(),
                upid.kind.as_str(),
                upid.id.as_str()
            ),
            ("pve1", "qmclone", "9000")
        );
        assert_eq!(upid.started_at, 1_795_220_612);
        for wrong in [
            "",
            "garbage",
            "UPID:pve1:xyz:0:0:qmstart:1:a@b:",
            "UPID:pve1:0:0:-5:qmstart:1:a@b:",
            "UPID:pve1:+1:0:0:qmstart:1:a@b:",
            "UPID:pve1:0:0:0:qmstart:1:a@b:\n",
            "UPID:pve1:0:0:0",
            "UPID::0:0:0:qmstart:1:a@b:",
            "UPID:pve1:0:0:0::1:a@b:",
            "UPID:pve1:0:0:0:qmstart:1::",
        ] {
            assert!(wrong.parse::<Upid>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn exit_statuses() {
        assert_eq!(Outcome::of_exit_status("OK"), Outcome::Ok);
        assert_eq!(Outcome::of_exit_status("WARNINGS: 2"), Outcome::Warnings(2));
        assert_eq!(
            Outcome::of_exit_status("unexpected status"),
            Outcome::Unknown("unexpected status".to_owned())
        );
        let text = "clone failed: cfs-lock 'storage-shared' error: got lock request timeout";
        assert_eq!(
            Outcome::of_exit_status(text),
            Outcome::Failed {
                meaning: Meaning::StorageBusy {
                    storage: "shared".to_owned()
                },
                text: text.to_owned(),
            }
        );
    }
}
