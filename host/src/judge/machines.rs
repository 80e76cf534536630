//! VMs of kproxide's own: those without a NodeClaim, and the anchors.

use kproxide_planner::report::{AnchorReport, AnchorTrouble, OrphanReport, Report};

use super::{Finding, Group, Level, named, reasons};

pub(super) fn check(report: &Report) -> Vec<Finding> {
    let orphans = report.orphans.iter().map(orphan);
    let anchors = report.anchors.iter().filter_map(anchor);
    orphans.chain(anchors).collect()
}

fn orphan(orphan: &OrphanReport) -> Finding {
    let level = match orphan.warning {
        true => Level::Warning,
        false => Level::Ok,
    };
    let object = named("VM", format_args!("{}/{}", orphan.cluster, orphan.vmid));
    Finding::new(
        level,
        Group::Proxmox,
        object,
        &reasons::ORPHAN,
        &*orphan.message,
    )
}

/// What stops work because of an anchor is said of the pools.
fn anchor(anchor: &AnchorReport) -> Option<Finding> {
    let reason = match anchor.trouble {
        AnchorTrouble::Missing => &reasons::ANCHOR_MISSING,
        AnchorTrouble::Stuck => &reasons::ANCHOR_STUCK,
        AnchorTrouble::Unproven | AnchorTrouble::Foreign => return None,
    };
    let object = named("ProxmoxCluster", &anchor.cluster);
    Some(Finding::warning(
        Group::Proxmox,
        object,
        reason,
        &*anchor.message,
    ))
}
