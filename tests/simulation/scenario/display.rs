//! A scenario, told to people.

use std::fmt;

use super::{Act, Alone, Flags, Scenario};
use crate::plan::Clock;

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flags {
            poll_interval,
            lease,
            anchor,
        } = self.flags;
        writeln!(
            out,
            "seed {}: {} hypervisors of {} GiB, {} machines of other people; --poll-interval {poll_interval:?} --lease-duration {:?} --lease-renew-deadline {:?} --lease-retry {:?} --anchor={anchor}",
            self.seed,
            self.hypervisors,
            self.memory_gib,
            self.foreign.len(),
            lease.duration,
            lease.renew_deadline,
            lease.retry
        )?;
        let [per_storage, per_hypervisor] = self.clones;
        writeln!(
            out,
            "  clones at once: {per_storage} per storage, {per_hypervisor} per hypervisor; machines per hypervisor: {:?}",
            self.per_hypervisor
        )?;
        for (index, pool) in self.pools.iter().enumerate() {
            let apps = self.apps.iter().filter(|app| app.pool == index);
            let apps: Vec<String> = apps
                .map(|app| {
                    let alone = match app.alone {
                        Some(Alone::HostPort(port)) => format!(", host port {port}"),
                        Some(Alone::AntiAffinity) => ", anti-affinity".to_owned(),
                        None => String::new(),
                    };
                    let volume = if app.volume { ", volumes" } else { "" };
                    format!("{} ({}m{alone}{volume})", app.name, app.milli_cores)
                })
                .collect();
            writeln!(
                out,
                "  pool {}: at most {} Nodes, {}, budget {}; {}; {:?}",
                pool.name,
                pool.max_nodes,
                pool.host_selection,
                pool.budget,
                apps.join(", "),
                pool.rules
            )?;
        }
        for step in self.steps.iter().chain(&self.encore) {
            match &step.act {
                Act::Load(load) => writeln!(out, "  {} pods {load:?}", Clock(step.at))?,
                Act::Copy(onto) => writeln!(
                    out,
                    "  {} somebody copies a machine of ours onto a VMID: {onto:?}",
                    Clock(step.at)
                )?,
                Act::Keep(keep) => {
                    writeln!(out, "  {} a Node is to be kept: {keep}", Clock(step.at))?;
                }
                Act::Silence => writeln!(out, "  {} a Node falls silent", Clock(step.at))?,
                Act::Mend => writeln!(out, "  {} the policy is mended", Clock(step.at))?,
                Act::Incident(incident) => writeln!(out, "  {} {incident:?}", Clock(step.at))?,
            }
        }
        Ok(())
    }
}
