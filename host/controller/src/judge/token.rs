//! Credentials of Proxmox with which kproxide works, although something is wrong: they may do more than kproxide needs, so
//! that a thief of them could do more, too; or they are not those in the Secret, so that nothing works after a restart.

use kproxide_planner::world::World;

use super::{Finding, Group, Known, named, reasons};

/// The condition `TokenFits` of each cluster of which it is known.
pub(super) fn check(world: &World, known: &Known<'_>) -> Vec<Finding> {
    let clusters = world.clusters().keys();
    let found = clusters.filter_map(|cluster| {
        let (group, object) = (Group::Proxmox, named("ProxmoxCluster", cluster));
        if let Some(why) = known.unused.get(cluster) {
            let reason = &reasons::NEW_CREDENTIALS_UNUSABLE;
            return Some(Finding::warning(group, object, reason, why));
        }
        let excess = known.excess.get(cluster)?;
        Some(match excess.is_empty() {
            true => Finding {
                reason: &reasons::TOKEN_FITS,
                ..Finding::ok(group, object, "")
            },
            false => {
                let reason = &reasons::TOKEN_OVER_PRIVILEGED;
                Finding::warning(group, object, reason, in_full(excess))
            }
        })
    });
    found.collect()
}

fn in_full(excess: &str) -> String {
    format!(
        "the credentials may do more than kproxide needs ({excess}). Give the user and the token only the roles that examples/proxmox/setup.sh gives"
    )
}
