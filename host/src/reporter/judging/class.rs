//! NodeClass: where its template is, whether it can be cloned, and whether its join file is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use kproxide_planner::facts::ClassFacts;
use kproxide_planner::ids::{ClassName, ClusterName};
use kproxide_planner::planning::Clones;
use kproxide_planner::refusal::Refusal;
use kproxide_planner::world::World;

use super::super::reasons;
use super::{clusters_of, listed, not_ready, ready, together, unknown};
use crate::kube::status::Judgement;

/// `join_problems`: why files of join scripts cannot be read.
pub(in crate::reporter) fn ready_of(
    name: &ClassName,
    facts: &ClassFacts,
    world: &World,
    clones: &Clones<'_>,
    join_problems: &BTreeMap<Arc<str>, String>,
) -> Judgement {
    if let Some(problem) = &facts.problem {
        return not_ready(&reasons::INVALID_SETTINGS, problem);
    }
    let join = facts.join_script.as_ref();
    if let Some((file, problem)) = join.and_then(|file| Some((file, join_problems.get(file)?))) {
        return not_ready(
            &reasons::JOIN_FILE_MISSING,
            format!(
                "join.guestExec.commandSecretFile {file}: {problem}. Mount the Secret with the join script, or correct the path"
            ),
        );
    }
    let clusters = clusters_of(world, name);
    let seen = |cluster: &&&_| {
        let inventory = world.inventories().get(**cluster);
        inventory.is_some_and(|inventory| inventory.taken_at.is_some())
    };
    let clusters: Vec<_> = clusters.iter().filter(seen).copied().collect();
    if clusters.is_empty() {
        return unknown(
            "no Proxmox cluster has answered yet, so kproxide has not looked for the template",
        );
    }
    let nowhere = Vec::new();
    let sites = clones.get(name).unwrap_or(&nowhere).iter();
    let sites: Vec<_> = sites
        .filter(|(id, _)| clusters.contains(&&id.cluster))
        .collect();
    if sites.iter().any(|(_, site)| site.is_ok()) {
        return ready(places(facts, world, &clusters));
    }
    let template = &facts.template;
    let is_named = |cluster: &&ClusterName| {
        let inventory = world.inventories().get(*cluster);
        let mut guests = inventory.into_iter().flat_map(|it| it.guests.values());
        guests.any(|guest| guest.name.as_ref() == Some(template))
    };
    if !clusters.iter().any(is_named) {
        let names: Vec<&str> = clusters.iter().map(|name| name.as_str()).collect();
        return not_ready(
            &reasons::TEMPLATE_MISSING,
            format!(
                "there is no template {template} in Proxmox cluster {}. Create it (examples/proxmox/setup.sh), or correct spec.template.name. If it is there, the credentials may not see it: grant VM.Audit and VM.Clone on /vms/VMID",
                listed(&names)
            ),
        );
    }
    let mut pools = world.pools().values();
    if !pools.any(|pool| pool.class == *name) {
        return unknown(
            "no NodePool uses this NodeClass, so kproxide has not looked at its template",
        );
    }
    // A VM of that name that is no template is on no server's list of templates.
    let inventories = clusters
        .iter()
        .filter_map(|name| world.inventories().get(*name));
    let templates = inventories.filter_map(|it| it.templates.get(template));
    let mut unreadable = templates.flatten().filter(|it| it.vmid.0 == 0);
    if let Some(problem) = unreadable.find_map(|it| it.problem.clone()) {
        return not_ready(&reasons::TEMPLATE_UNUSABLE, problem);
    }
    let texts = sites.iter().filter_map(|(id, site)| {
        let refusal = site.as_ref().err()?;
        Some((id, refusal))
    });
    let unusable = texts
        .clone()
        .any(|(_, it)| matches!(it, Refusal::Template(_)));
    // What is true of the template as such stands once, without a server.
    let message = together(texts.map(|(id, refusal)| {
        if let Refusal::Template(text) = refusal {
            return text.clone();
        }
        format!("{}: {refusal}", id.name)
    }));
    match unusable {
        true => not_ready(&reasons::TEMPLATE_UNUSABLE, message),
        false => not_ready(
            &reasons::CLONE_IMPOSSIBLE,
            format!("template {template} can be cloned on no server. {message}"),
        ),
    }
}

/// On which servers its template is.
fn places(facts: &ClassFacts, world: &World, clusters: &[&ClusterName]) -> String {
    let mut servers: Vec<&str> = Vec::new();
    for cluster in clusters {
        let inventory = world.inventories().get(*cluster);
        let templates = inventory.and_then(|it| it.templates.get(&facts.template));
        let whole = templates.into_iter().flatten();
        let whole = whole.filter(|template| template.problem.is_none());
        servers.extend(whole.map(|template| &*template.hypervisor));
    }
    servers.sort_unstable();
    servers.dedup();
    format!("template {} is on {}", facts.template, servers.join(", "))
}
