//! The story of a run: one line, with virtual time, for each thing that a person with two dashboards would notice.
//! [`Audience`] shows the lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use kproxide_simulator::pve::{MachineEvent, VmView};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::DemoError;
use super::world::{Load, is_ready};
use kproxide_lab::Lab;

/// Machines that this installation made have numbers of its range.
const OURS: std::ops::RangeInclusive<u32> = 500..=599;

/// While pods come and go, their number is told so often.
const PODS_EVERY: Duration = Duration::from_secs(5);

/// Who follows a run: lines on an output, or a picture in a terminal. Neither can change what happens in it.
pub(super) trait Audience {
    /// Something is told.
    ///
    /// # Errors
    /// Nobody listens any more.
    fn hear(&mut self, said: Said) -> Result<(), DemoError>;

    /// A moment of the world has passed; what there was to tell of it was told.
    ///
    /// # Errors
    /// Nobody looks any more.
    fn look(&mut self, lab: &Lab, at: Duration) -> Result<(), DemoError>;
}

/// One thing that is told, and when, in the world's time since its beginning. Shown, it is as it stands on a plain output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) at: Duration,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The script makes something happen.
    Scene(String),
    /// Something was seen.
    Line(String),
    /// The end.
    Summary(Summary),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = clock(self.at);
        match &self.what {
            What::Scene(text) => write!(f, "\n{time}  ── {text}"),
            What::Line(text) => write!(f, "{time}  {text}"),
            What::Summary(summary) => write!(f, "\n{time}  ── summary\n{summary}"),
        }
    }
}

/// What the run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) seen: Seen,
    pub(super) load: Load,
    pub(super) machines_left: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seen:
                Seen {
                    created,
                    destroyed,
                    rejected,
                    reloads,
                    most_machines,
                },
            load: Load { running, all, .. },
            machines_left,
        } = self;
        writeln!(f, "pods running          {running} of {all}")?;
        writeln!(
            f,
            "machines made         {created}, at most {most_machines} at a time"
        )?;
        writeln!(f, "machines removed      {destroyed}, {machines_left} left")?;
        writeln!(f, "placements rejected   {rejected}, each with its reason")?;
        write!(f, "policies swapped      {reloads}, without a restart")
    }
}

/// What has been seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) created: u32,
    pub(super) destroyed: u32,
    /// Placements that a hypervisor was rejected for, with a reason.
    pub(super) rejected: u32,
    pub(super) reloads: u32,
    pub(super) most_machines: usize,
}

/// Watches the world and says what changed.
pub(super) struct Story {
    started: Instant,
    machines: UnboundedReceiver<MachineEvent>,
    /// Events by name, with their count when told.
    events: BTreeMap<String, i64>,
    ready: BTreeSet<String>,
    /// How many pods ran, and of how many, and when that was told.
    pods: (Duration, (usize, usize)),
    /// VMIDs that were started; a machine that is started again is no new one.
    made: BTreeSet<u32>,
    seen: Seen,
    /// What was said last of pods that get no machine.
    pub(super) unhelped: Option<String>,
    /// Why kproxide did not take a policy.
    pub(super) refused: Option<String>,
}

impl Story {
    pub(super) fn new(lab: &Lab) -> Self {
        Self {
            started: Instant::now(),
            machines: lab.pve.machine_events(),
            events: BTreeMap::new(),
            ready: BTreeSet::new(),
            pods: Default::default(),
            made: BTreeSet::new(),
            seen: Seen::default(),
            unhelped: None,
            refused: None,
        }
    }

    /// The world's time since its beginning.
    pub(super) fn time(&self) -> Duration {
        self.started.elapsed()
    }

    /// What changed since the last call, in the order in which it is told.
    pub(super) fn news(&mut self, lab: &Lab) -> Vec<String> {
        let mut news = Vec::new();
        self.events(lab, &mut news);
        self.machines(&mut news);
        self.nodes(lab, &mut news);
        self.pods(lab, &mut news);
        self.seen.most_machines = self.seen.most_machines.max(machines(lab).count());
        news
    }

    pub(super) fn summary(&self, lab: &Lab) -> Summary {
        Summary {
            seen: self.seen,
            load: Load::of(&lab.kube.list("pods")),
            machines_left: machines(lab).count(),
        }
    }

    fn machines(&mut self, news: &mut Vec<String>) {
        while let Ok(event) = self.machines.try_recv() {
            if let MachineEvent::Started {
                vmid,
                hypervisor,
                name,
                ..
            } = &event
                && is_ours(*vmid)
            {
                self.made.insert(*vmid);
                self.seen.created = u32::try_from(self.made.len()).unwrap_or(u32::MAX);
                news.push(format!("VM {vmid} {name} starts on {hypervisor}"));
            }
            if let MachineEvent::HypervisorDown { hypervisor } = &event {
                news.push(format!("server {hypervisor} is down, with its machines"));
            }
            if let MachineEvent::HypervisorUp { hypervisor } = &event {
                news.push(format!("server {hypervisor} is up, its machines are off"));
            }
            if let MachineEvent::Destroyed {
                vmid, hypervisor, ..
            } = &event
                && is_ours(*vmid)
            {
                self.seen.destroyed += 1;
                news.push(format!("VM {vmid} on {hypervisor} is destroyed"));
            }
        }
    }

    fn events(&mut self, lab: &Lab, news: &mut Vec<String>) {
        let events = lab.kube.list("events.events.k8s.io");
        let about = |event: &Value| {
            let named = |value: &Value| text(value).to_owned();
            (named(&event["regarding"]["name"]), named(&event["reason"]))
        };
        let of_nodes = events.iter().filter(|it| it["regarding"]["kind"] == "Node");
        let of_nodes: BTreeSet<_> = of_nodes.map(about).collect();
        let mut pods: BTreeSet<(String, String)> = BTreeSet::new();
        for event in &events {
            let name = text(&event["metadata"]["name"]).to_owned();
            let count = event["series"]["count"].as_i64().unwrap_or(1);
            if self
                .events
                .insert(name, count)
                .is_some_and(|told| told >= count)
            {
                continue;
            }
            let (kind, note) = (text(&event["regarding"]["kind"]), text(&event["note"]));
            let (name, reason) = about(event);
            self.seen.rejected +=
                u32::try_from(note.matches("; not on ").count()).unwrap_or(u32::MAX);
            match reason.as_str() {
                "PolicyLoaded" => self.seen.reloads += 1,
                "PolicyRefused" => self.refused = Some(note.to_owned()),
                "NotTriggerScaleUp" => self.unhelped = Some(note.to_owned()),
                _ => {}
            }
            match kind {
                // What is said of thirty pods is one line.
                "Pod" => {
                    pods.insert((reason, note.to_owned()));
                }
                // The same is said of its Node, which has its name.
                "NodeClaim" if of_nodes.contains(&about(event)) => {}
                _ => news.push(format!("{reason}: {kind} {name}: {note}")),
            }
        }
        for (reason, note) in pods {
            news.push(format!("{reason}: {note}"));
        }
    }

    fn nodes(&mut self, lab: &Lab, news: &mut Vec<String>) {
        let nodes = lab.kube.list("nodes");
        let name = |node: &Value| text(&node["metadata"]["name"]).to_owned();
        let all: BTreeSet<String> = nodes.iter().map(name).collect();
        let ready = nodes.iter().filter(|node| is_ready(node)).map(name);
        let ready: BTreeSet<String> = ready.collect();
        for node in ready.difference(&self.ready) {
            news.push(format!("Node {node} is Ready"));
        }
        for node in self.ready.difference(&ready) {
            let what = if all.contains(node) {
                "is not Ready any more"
            } else {
                "is gone"
            };
            news.push(format!("Node {node} {what}"));
        }
        self.ready = ready;
    }

    /// Pods come and go each second. That is told when it is over, or every few seconds.
    fn pods(&mut self, lab: &Lab, news: &mut Vec<String>) {
        let load = Load::of(&lab.kube.list("pods"));
        let count = (load.running, load.all);
        let is_over = load.running == load.all;
        let (at, told) = self.pods;
        if count != told && (is_over || self.time() >= at + PODS_EVERY) {
            news.push(format!("{} of {} pods run", load.running, load.all));
            self.pods = (self.time(), count);
        }
    }
}

/// As a clock shows it.
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// Machines of ours that Proxmox has now.
pub(super) fn machines(lab: &Lab) -> impl Iterator<Item = VmView> {
    let vms = lab.pve.snapshot().vms.into_iter();
    vms.filter(|vm| is_ours(vm.vmid))
}

pub(super) fn is_ours(vmid: u32) -> bool {
    OURS.contains(&vmid)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
