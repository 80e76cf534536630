//! What the Proxmox clusters have together: templates of one name, and storages for machines.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Problem;
use super::ask::{Asker, Question};
use super::proxmox::Cluster;
use crate::args::Init;
use kproxide_pve::inventory::{Guest, GuestKind, Hypervisor, Inventory};

/// Proxmox tells the name of a new VM with its next broadcast, within ten seconds.
const BROADCAST: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What machines are made from.
pub(super) struct Class {
    pub(super) template: String,
    /// Each server has its own; otherwise there is one, on a storage that all share.
    pub(super) is_local: bool,
    /// `None`: the template's.
    pub(super) storage: Option<String>,
}

/// # Errors
/// There is no template, or an answer is missing.
pub(super) async fn ask(
    asker: &Asker,
    args: &Init,
    clusters: &mut [Cluster],
) -> Result<Class, Problem> {
    let names = loop {
        for cluster in &mut *clusters {
            wait_for_names(cluster, args.template.as_deref()).await?;
        }
        let names = common(clusters.iter().map(|it| template_names(&it.inventory)));
        if !names.is_empty() {
            break names;
        }
        let each: Vec<String> = clusters.iter().map(templates_of).collect();
        let problem = Problem::proxmox(format!(
            "there is no VM template of one name in each Proxmox cluster ({}): run setup.sh there, which makes it and lets the token see it",
            each.join("; ")
        ));
        // Whoever makes it now loses no other answer.
        asker.asks_again(problem, true)?;
        if !asker.confirms("Look again?", Some(true))? {
            return Err(Problem::proxmox(
                "there is no VM template to make machines from",
            ));
        }
    };
    let question = Question {
        text: "VM template of the machines",
        flag: "--template",
    };
    let usual = names.iter().position(|name| name == "k8s-node");
    let usual = usual.filter(|_| !asker.is_nobody());
    let chosen = asker.one(question, args.template.as_deref(), &names, usual)?;
    let template = names[chosen].clone();

    let of_template = "that of the template".to_owned();
    let storages = common(clusters.iter().map(storages_of));
    let mut options = vec![of_template];
    options.extend(storages.iter().cloned());
    let question = Question {
        text: "Storage of the machines' disks",
        flag: "--storage",
    };
    let storage = match (&args.storage, asker) {
        (None, Asker::Nobody) => None,
        (Some(given), _) => {
            let chosen = asker.one(question, Some(given), &storages, None)?;
            Some(storages[chosen].clone())
        }
        (None, Asker::Person(_)) => match asker.one(question, None, &options, Some(0))? {
            0 => None,
            chosen => Some(options[chosen].clone()),
        },
    };
    let mut is_local = true;
    for cluster in &*clusters {
        is_local &= is_local_in(cluster, &template).await?;
    }
    Ok(Class {
        template,
        is_local,
        storage,
    })
}

/// Reads the cluster again until the templates have names.
async fn wait_for_names(cluster: &mut Cluster, wanted: Option<&str>) -> Result<(), Problem> {
    let until = Instant::now() + BROADCAST;
    loop {
        let names = template_names(&cluster.inventory);
        let is_there = wanted.map_or(!names.is_empty(), |wanted| names.contains(wanted));
        let is_named = |it: &Guest| {
            let server = cluster.inventory.hypervisor(&it.hypervisor);
            it.name.is_some() || !server.is_some_and(|server| server.online)
        };
        let all_named = cluster.inventory.guests.iter().all(is_named);
        if (is_there && all_named) || Instant::now() >= until {
            return Ok(());
        }
        sleep(LOOK_AGAIN).await;
        let read = cluster.client.inventory().await;
        cluster.inventory = read.map_err(|error| Problem::proxmox(error.chain()))?;
    }
}

fn template_names(inventory: &Inventory) -> BTreeSet<String> {
    let guests = inventory.guests.iter();
    let templates = guests.filter(|it| it.template && it.kind == GuestKind::Qemu);
    templates.filter_map(|it| it.name.clone()).collect()
}

fn templates_of(cluster: &Cluster) -> String {
    let names: Vec<String> = template_names(&cluster.inventory).into_iter().collect();
    let names = match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    format!("{}: {names}", cluster.name)
}

/// Those that take disks on each server where machines are made.
fn storages_of(cluster: &Cluster) -> BTreeSet<String> {
    let of_server = |server: &Hypervisor| {
        let storages = server.storages.iter();
        let storages = storages.filter(|it| it.active && it.takes_disks());
        storages.map(|it| it.name.clone()).collect::<BTreeSet<_>>()
    };
    let servers = cluster.inventory.hypervisors.iter();
    let servers = servers.filter(|it| cluster.servers.contains(&it.name));
    common(servers.map(of_server)).into_iter().collect()
}

/// What is in each of the sets.
fn common(sets: impl Iterator<Item = BTreeSet<String>>) -> Vec<String> {
    let all = sets.reduce(|a, b| a.intersection(&b).cloned().collect());
    all.unwrap_or_default().into_iter().collect()
}

/// Each server where machines are made has a template of that name, or the only one is on a disk that others cannot
/// reach.
async fn is_local_in(cluster: &Cluster, template: &str) -> Result<bool, Problem> {
    let guests = cluster.inventory.guests.iter();
    let of_name = guests.filter(|it| it.template && it.name.as_deref() == Some(template));
    let of_name: Vec<_> = of_name.collect();
    let has_own = |server: &String| of_name.iter().any(|it| it.hypervisor == *server);
    let Some(first) = of_name.first() else {
        return Ok(true);
    };
    if cluster.servers.iter().all(has_own) || of_name.len() > 1 {
        return Ok(true);
    }
    let config = cluster
        .client
        .read_config(&first.hypervisor, first.vmid)
        .await;
    let config = config.map_err(|error| Problem::proxmox(error.chain()))?;
    let storage = config.boot_disk().and_then(|disk| disk.storage());
    let server = cluster.inventory.hypervisor(&first.hypervisor);
    let shared = storage.zip(server).and_then(|(name, it)| it.storage(name));
    Ok(!shared.is_some_and(|it| it.shared))
}
