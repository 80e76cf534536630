//! NodeClass: where its template is, whether it can be cloned, and whether its join file is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kproxide_planner::facts::ClassFacts;
use kproxide_planner::ids::{ClassName, ClusterName};
use kproxide_planner::keys;
use kproxide_planner::planning::{Clones, Offer};
use kproxide_planner::reasons::no_hypervisor::{Refusal, grouped};
use kproxide_planner::world::World;

use super::room::nowhere;
use super::{
    Finding, Group, Level, Reason, Stops, clusters_of, in_words, is_down, listed, named, reasons,
    together,
};

/// What a class depends on.
pub(super) struct Sight<'a> {
    pub(super) world: &'a World,
    pub(super) clones: &'a Clones<'a>,
    pub(super) offers: &'a [Offer<'a>],
    pub(super) clusters: &'a BTreeMap<ClusterName, Finding>,
    /// Why files of join scripts cannot be read.
    pub(super) join_problems: &'a BTreeMap<Arc<str>, String>,
}

/// The condition Ready.
pub(super) fn ready_of(name: &ClassName, facts: &ClassFacts, sight: &Sight<'_>) -> Finding {
    let Sight {
        world,
        clones,
        offers,
        join_problems,
        ..
    } = *sight;
    let group = Group::Configuration;
    let object = || named("NodeClass", name);
    let not_ready =
        |reason: &'static Reason, message: String| Finding::error(group, object(), reason, message);
    let unknown = |message: &str| Finding {
        reason: &reasons::UNKNOWN,
        ..Finding::ok(group, object(), message)
    };
    if facts.existence.deleting_since.is_some() {
        let finding =
            Finding::warning(group, object(), &reasons::BEING_DELETED, going(name, world));
        let mut pools = world.pools().values();
        let is_used = pools.any(|pool| pool.node_class == *name && pool.going_since().is_none());
        return match is_used {
            true => Finding {
                level: Level::Error,
                stops: Stops::Launches,
                ..finding
            },
            false => finding,
        };
    }
    if let Some(problem) = &facts.problem {
        return not_ready(&reasons::INVALID_SETTINGS, problem.clone());
    }
    let join = facts.join.script();
    if let Some((file, problem)) = join.and_then(|file| Some((file, join_problems.get(file)?))) {
        return not_ready(
            &reasons::JOIN_FILE_MISSING,
            format!("join.guestExec.commandSecretFile {file}: {problem}"),
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
    let known = clusters.iter();
    let known = known.filter_map(|name| Some((*name, sight.clusters.get(*name)?)));
    let lost: Vec<_> = known
        .filter(|(_, it)| is_down(it) && it.stops == Stops::All)
        .collect();
    if lost.len() == clusters.len() {
        let finding = not_ready(&reasons::NO_USABLE_CLUSTER, in_words(&lost));
        return finding.following_all(lost.iter().map(|(_, it)| *it));
    }
    let none = Vec::new();
    let sites = clones.get(name).unwrap_or(&none).iter();
    let sites: Vec<_> = sites
        .filter(|(id, _)| clusters.contains(&&id.cluster))
        .collect();
    if sites.iter().any(|(_, site)| site.is_ok()) {
        let of_class = offers.iter().filter(|it| it.class == name);
        return match nowhere(of_class) {
            Some(it) => Finding {
                after: it.after,
                ..not_ready(it.reason, it.message)
            },
            None => Finding::ok(group, object(), places(facts, world, &clusters)),
        };
    }
    // Tags and VMIDs were looked for with the templates.
    let lacks = |cluster: &&&ClusterName| {
        let template = facts.template_in(cluster);
        let inventory = world.inventories().get(**cluster);
        let mut guests = inventory.into_iter().flat_map(|it| it.guests.values());
        let name = template.name();
        name.is_some_and(|name| !guests.any(|guest| guest.name.as_ref() == Some(name)))
    };
    if let Some(first) = clusters
        .first()
        .filter(|_| clusters.iter().all(|it| lacks(&it)))
    {
        let template = facts.template_in(first);
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
    if !pools.any(|pool| pool.node_class == *name) {
        return unknown(
            "no NodePool uses this NodeClass, so kproxide has not looked at its template",
        );
    }
    // A VM of that name that is no template is on no server's list of templates.
    let templates = clusters.iter().flat_map(|it| world.templates(facts, it));
    let mut unreadable = templates.filter(|it| it.vmid.0 == 0);
    if let Some(template) = unreadable.find(|it| it.problem.is_some()) {
        let problem = template.problem.clone().unwrap_or_default();
        let finding = not_ready(&reasons::TEMPLATE_UNUSABLE, problem);
        return finding.typing(template.commands.clone());
    }
    let texts = sites.iter().filter_map(|(id, site)| {
        let refusal = site.as_ref().err()?;
        Some((id, refusal))
    });
    let agentless = texts.clone().filter_map(|(_, refusal)| {
        if let Refusal::NoAgent(vmid) = refusal {
            Some(format!("qm set {vmid} --agent 1"))
        } else {
            None
        }
    });
    let agentless: Vec<String> = agentless.collect();
    let unusable = texts
        .clone()
        .any(|(_, it)| matches!(it, Refusal::Template(_)));
    let mut of_clusters = clusters.iter().filter_map(|name| sight.clusters.get(*name));
    let lacks_storage = of_clusters.any(|it| *it.reason == reasons::STORAGE_MISSING);
    let is_silent = texts
        .clone()
        .any(|(_, it)| matches!(it, Refusal::Silent(_)));
    // What is true of the template as such stands once, without a server.
    let as_such = texts.clone().filter_map(|(_, refusal)| {
        if let Refusal::Template(text) = refusal {
            Some(text.clone())
        } else {
            None
        }
    });
    let of_servers = texts.filter(|(_, refusal)| !matches!(refusal, Refusal::Template(_)));
    let of_servers = of_servers.map(|(id, refusal)| (id.name.to_string(), refusal.to_string()));
    let of_servers = grouped(of_servers);
    let of_servers = (!of_servers.is_empty()).then_some(of_servers);
    let message = together(as_such.chain(of_servers));
    match (unusable, agentless.is_empty()) {
        (true, _) => not_ready(&reasons::TEMPLATE_UNUSABLE, message),
        (false, false) => not_ready(&reasons::NO_AGENT, message).typing(agentless),
        (false, true) => Finding {
            // The Proxmox cluster names the storage that it lacks.
            stops: match lacks_storage {
                true => Stops::Follows,
                false => reasons::CLONE_IMPOSSIBLE.stops,
            },
            // What a server does not say may end by itself.
            after: match is_silent {
                true => reasons::UNREACHABLE.after,
                false => reasons::CLONE_IMPOSSIBLE.after,
            },
            ..not_ready(
                &reasons::CLONE_IMPOSSIBLE,
                format!(
                    "template {} can be cloned on no server. {message}",
                    choices(facts, &clusters)
                ),
            )
        },
    }
}

/// What keeps a class that somebody deletes, and what lets it go.
fn going(name: &ClassName, world: &World) -> String {
    let claims = world.claims().values();
    let of_class = claims.filter(|claim| claim.spec.class == *name);
    let pools: BTreeSet<&str> = of_class.map(|claim| claim.spec.pool.as_str()).collect();
    let pools: Vec<&str> = pools.into_iter().collect();
    let deletes = "somebody deletes this NodeClass, so kproxide makes no machines from it";
    if pools.is_empty() {
        return format!("{deletes}, and none of its machines is left");
    }
    format!(
        "{deletes}. It stays as long as machines of these NodePools are made from it: {}. Name another NodeClass in their spec.nodeClass, then delete the NodeClaims, or annotate them with kproxide.dev/replace=true. `kubectl get nodeclaims --selector {}={name}` shows them",
        listed(&pools),
        keys::CLASS
    )
}

/// What tells its template, which may be another in each cluster.
fn choices(facts: &ClassFacts, clusters: &[&ClusterName]) -> String {
    let choices = clusters.iter().map(|it| facts.template_in(it).to_string());
    let choices: BTreeSet<String> = choices.collect();
    let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
    choices.join(" or ")
}

/// On which servers its template is.
fn places(facts: &ClassFacts, world: &World, clusters: &[&ClusterName]) -> String {
    let mut servers: Vec<&str> = Vec::new();
    for cluster in clusters {
        let whole = world.templates(facts, cluster).iter();
        let whole = whole.filter(|template| template.problem.is_none());
        servers.extend(whole.map(|template| &*template.hypervisor));
    }
    servers.sort_unstable();
    servers.dedup();
    format!(
        "template {} is on {}",
        choices(facts, clusters),
        servers.join(", ")
    )
}
