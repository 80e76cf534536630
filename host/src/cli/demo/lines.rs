//! How it is told: one line for each thing that somebody watching two dashboards would notice, with virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use kproxide_simulator::pve::MachineEvent;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::lab::Lab;

/// Machines that this installation made have numbers of its range.
const OURS: std::ops::RangeInclusive<u32> = 500..=599;

/// What has been seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) created: u32,
    pub(super) destroyed: u32,
    /// Placements that a hypervisor was rejected for, with a reason.
    pub(super) rejected: u32,
    pub(super) reloads: u32,
    most_machines: usize,
}

/// Watches the world and prints what changed.
pub(super) struct Lines {
    started: Instant,
    machines: UnboundedReceiver<MachineEvent>,
    /// Events by name, with their count when told.
    events: BTreeMap<String, i64>,
    ready: BTreeSet<String>,
    running: usize,
    /// VMIDs that were started; a machine that is started again is no new one.
    made: BTreeSet<u32>,
    seen: Seen,
}

impl Lines {
    pub(super) fn new(lab: &Lab) -> Self {
        Self {
            started: Instant::now(),
            machines: lab.pve.machine_events(),
            events: BTreeMap::new(),
            ready: BTreeSet::new(),
            running: 0,
            made: BTreeSet::new(),
            seen: Seen::default(),
        }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen
    }

    pub(super) fn scene(&self, out: &mut impl Write, text: &str) -> io::Result<()> {
        writeln!(out, "\n{}  ── {text}", self.time())
    }

    pub(super) fn reached(&self, out: &mut impl Write, what: &str) -> io::Result<()> {
        writeln!(out, "{}  {what}", self.time())
    }

    /// Prints what changed since the last call.
    pub(super) fn tell(&mut self, out: &mut impl Write, lab: &Lab) -> io::Result<()> {
        self.tell_events(out, lab)?;
        self.tell_machines(out)?;
        self.tell_nodes(out, lab)?;
        self.seen.most_machines = self.seen.most_machines.max(machines(lab));
        Ok(())
    }

    fn tell_machines(&mut self, out: &mut impl Write) -> io::Result<()> {
        while let Ok(event) = self.machines.try_recv() {
            if let MachineEvent::Started {
                vmid,
                hypervisor,
                name,
                ..
            } = &event
                && OURS.contains(vmid)
            {
                self.made.insert(*vmid);
                self.seen.created = u32::try_from(self.made.len()).unwrap_or(u32::MAX);
                writeln!(
                    out,
                    "{}  VM {vmid} {name} starts on {hypervisor}",
                    self.time()
                )?;
            }
            if let MachineEvent::Destroyed {
                vmid, hypervisor, ..
            } = &event
                && OURS.contains(vmid)
            {
                self.seen.destroyed += 1;
                writeln!(
                    out,
                    "{}  VM {vmid} on {hypervisor} is destroyed",
                    self.time()
                )?;
            }
        }
        Ok(())
    }

    fn tell_events(&mut self, out: &mut impl Write, lab: &Lab) -> io::Result<()> {
        let mut pods: BTreeSet<(String, String)> = BTreeSet::new();
        for event in lab.kube.list("events.events.k8s.io") {
            let name = text(&event["metadata"]["name"]).to_owned();
            let count = event["series"]["count"].as_i64().unwrap_or(1);
            if self
                .events
                .insert(name, count)
                .is_some_and(|told| told >= count)
            {
                continue;
            }
            let (reason, note) = (text(&event["reason"]), text(&event["note"]));
            self.seen.rejected +=
                u32::try_from(note.matches("; not on ").count()).unwrap_or(u32::MAX);
            if reason == "PolicyReloaded" {
                self.seen.reloads += 1;
            }
            // What is said of thirty pods is one line.
            if event["regarding"]["kind"] == "Pod" {
                pods.insert((reason.to_owned(), note.to_owned()));
            } else {
                let about = format!(
                    "{} {}",
                    text(&event["regarding"]["kind"]),
                    text(&event["regarding"]["name"])
                );
                writeln!(out, "{}  {reason}: {about}: {note}", self.time())?;
            }
        }
        for (reason, note) in pods {
            writeln!(out, "{}  {reason}: {note}", self.time())?;
        }
        Ok(())
    }

    fn tell_nodes(&mut self, out: &mut impl Write, lab: &Lab) -> io::Result<()> {
        let ready: BTreeSet<String> = lab
            .kube
            .list("nodes")
            .iter()
            .filter(|node| is_ready(node))
            .map(|node| text(&node["metadata"]["name"]).to_owned())
            .collect();
        for node in ready.difference(&self.ready) {
            writeln!(out, "{}  Node {node} is Ready", self.time())?;
        }
        for node in self.ready.difference(&ready) {
            writeln!(out, "{}  Node {node} is no longer Ready", self.time())?;
        }
        self.ready = ready;
        let pods = lab.kube.list("pods");
        let running = pods
            .iter()
            .filter(|pod| {
                pod["metadata"]["namespace"] == "default" && pod["status"]["phase"] == "Running"
            })
            .count();
        if running != self.running {
            let all = pods
                .iter()
                .filter(|pod| pod["metadata"]["namespace"] == "default")
                .count();
            writeln!(out, "{}  {running} of {all} pods run", self.time())?;
            self.running = running;
        }
        Ok(())
    }

    pub(super) fn summary(
        &self,
        out: &mut impl Write,
        lab: &Lab,
        running: usize,
    ) -> io::Result<()> {
        let Seen {
            created,
            destroyed,
            rejected,
            reloads,
            most_machines,
        } = self.seen;
        writeln!(out, "\n{}  ── summary", self.time())?;
        writeln!(out, "pods running          {running} of {running}")?;
        writeln!(
            out,
            "machines made         {created}, at most {most_machines} at a time"
        )?;
        writeln!(
            out,
            "machines removed      {destroyed}, {} left",
            machines(lab)
        )?;
        writeln!(
            out,
            "placements rejected   {rejected}, each with its reason"
        )?;
        writeln!(out, "policies swapped      {reloads}, without a restart")
    }

    fn time(&self) -> String {
        let seconds = self.started.elapsed().as_secs();
        format!(
            "{:02}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
    }
}

/// Machines of ours that Proxmox has now.
pub(super) fn machines(lab: &Lab) -> usize {
    lab.pve
        .snapshot()
        .vms
        .iter()
        .filter(|vm| OURS.contains(&vm.vmid))
        .count()
}

fn is_ready(node: &Value) -> bool {
    node["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|c| c["type"] == "Ready" && c["status"] == "True")
        })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
