//! VMs of kproxide's own: those without a NodeClaim, the anchors, and what machines show that no other one does.

use std::collections::BTreeMap;

use kproxide_planner::facts::OrphanLook;
use kproxide_planner::keys;
use kproxide_planner::plan::report::{AnchorReport, AnchorTrouble, OrphanReport, Report};
use kproxide_planner::world::World;

use super::{Finding, Group, Level, listed, named, reasons};

pub(super) fn check(world: &World, report: &Report) -> Vec<Finding> {
    let known = report.orphans.iter().filter(|it| it.word.is_none());
    let anchors = report.anchors.iter().filter_map(anchor);
    known
        .map(orphan)
        .chain(unknown(world, report))
        .chain(doubts(report))
        .chain(anchors)
        .collect()
}

/// What kproxide does not believe of Nodes, once for each NodeClass.
fn doubts(report: &Report) -> Vec<Finding> {
    let mut by_class: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for doubt in &report.doubts {
        let texts = by_class.entry(&doubt.class).or_default();
        texts.push(doubt.to_string());
    }
    let findings = by_class.into_iter().map(|(class, texts)| {
        let message = format!(
            "{}. kproxide does not count on it for the next machine before a second Node shows as much",
            texts.join("; ")
        );
        let object = named("NodeClass", class);
        Finding::warning(Group::Nodes, object, &reasons::NODE_DOUBTED, message)
    });
    findings.collect()
}

/// Machines that wait for a person's word: one finding for each cluster, and one line to type for all in it. After a restore of etcd they may be many.
fn unknown(world: &World, report: &Report) -> Vec<Finding> {
    let mut by_cluster: BTreeMap<_, Vec<(&OrphanReport, &str)>> = BTreeMap::new();
    for orphan in &report.orphans {
        if let Some(word) = orphan.word.as_deref() {
            let waiting = by_cluster.entry(&orphan.cluster).or_default();
            waiting.push((orphan, word));
        }
    }
    let findings = by_cluster.into_iter().map(|(cluster, waiting)| {
        let words = waiting.iter().map(|(_, word)| *word);
        let command = acknowledging(&with_standing(world, words.collect()));
        let (object, message) = match &waiting[..] {
            // Its own line would take back the words that stand.
            [(one, word)] => {
                let message = one.message.replace(&acknowledging(word), &command);
                (of_vm(one), message)
            }
            all => {
                let vms: Vec<String> = all.iter().map(|(it, _)| seen(world, it)).collect();
                let vms: Vec<&str> = vms.iter().map(String::as_str).collect();
                let message = format!(
                    "{} VMs carry markers of kproxide, the Ledger does not know them, and their Nodes are younger than it: {}. kproxide leaves them alone. Let it take over those that are yours, and remove the others",
                    all.len(),
                    listed(&vms)
                );
                (named("ProxmoxCluster", cluster), message)
            }
        };
        Finding::warning(Group::Proxmox, object, &reasons::MACHINE_UNKNOWN, message)
            .typing([command])
    });
    findings.collect()
}

/// `kubectl annotate` replaces the whole value, and a word counts until the machine's row stands.
fn with_standing(world: &World, mut words: Vec<&str>) -> String {
    let standing = world
        .ledger()
        .and_then(|it| it.orphans_acknowledged.as_deref());
    let standing = standing.unwrap_or_default().split(',').map(str::trim);
    let mut all: Vec<&str> = standing.filter(|word| !word.is_empty()).collect();
    words.retain(|word| !all.contains(word));
    all.extend(words);
    all.join(",")
}

fn acknowledging(words: &str) -> String {
    let key = keys::ACKNOWLEDGE_ORPHAN;
    format!("kubectl annotate --overwrite ledger kproxide {key}={words}")
}

/// `home/201 (web-x7, node-a)`: its NodeClaim, of which the marker speaks, and its Node.
fn seen(world: &World, orphan: &OrphanReport) -> String {
    let looks = world.orphans().get(&orphan.cluster);
    let claim = match looks.and_then(|looks| looks.get(&orphan.vmid)) {
        Some(OrphanLook::Ours(facts)) => facts.name.as_deref(),
        Some(OrphanLook::Anchor(_) | OrphanLook::NotProven(_)) | None => None,
    };
    let node = orphan.node.as_ref().map(|node| node.as_str());
    let names: Vec<&str> = claim.into_iter().chain(node).collect();
    let names = match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    };
    format!("{}/{}{names}", orphan.cluster, orphan.vmid)
}

fn of_vm(orphan: &OrphanReport) -> String {
    named("VM", format_args!("{}/{}", orphan.cluster, orphan.vmid))
}

fn orphan(orphan: &OrphanReport) -> Finding {
    let level = match orphan.warning {
        true => Level::Warning,
        false => Level::Ok,
    };
    Finding::new(
        level,
        Group::Proxmox,
        of_vm(orphan),
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

#[cfg(test)]
mod tests {
    use kproxide_planner::facts::{Delta, LedgerFacts};
    use kproxide_planner::ids::Vmid;

    use super::*;

    #[test]
    fn s8_machines_that_wait_for_a_word_are_said_in_one_line() {
        let orphan = |vmid: u32, word: Option<&str>| OrphanReport {
            cluster: "home".into(),
            vmid: Vmid(vmid),
            pool: None,
            node: None,
            warning: true,
            word: word.map(str::to_owned),
            message: format!("of {vmid}"),
        };
        let said = |orphans: Vec<OrphanReport>| {
            let report = Report {
                orphans,
                ..Report::default()
            };
            let said = check(&World::default(), &report).into_iter();
            let said = said.map(|it| (it.object, it.reason.word, it.commands));
            said.collect::<Vec<_>>()
        };
        let line = |words: &str| {
            let line =
                "kubectl annotate --overwrite ledger kproxide kproxide.dev/acknowledge-orphan";
            vec![format!("{line}={words}")]
        };
        let one = said(vec![orphan(201, Some("home:201:a")), orphan(202, None)]);
        let known = ("VM/home/202".to_owned(), "Orphan", Vec::new());
        let unknown = |object: &str, words| (object.to_owned(), "MachineUnknown", line(words));
        assert_eq!(one, [known, unknown("VM/home/201", "home:201:a")]);
        let two = [(201, "home:201:a"), (203, "home:203:c")];
        let two = two.map(|(vmid, word)| orphan(vmid, Some(word)));
        let words = "home:201:a,home:203:c";
        assert_eq!(said(two.into()), [unknown("ProxmoxCluster/home", words)]);
    }

    #[test]
    fn s8_each_cluster_names_its_machines_and_keeps_the_words_that_stand() {
        let orphan = |cluster: &str, vmid: u32| {
            let word = format!("{cluster}:{vmid}:a");
            OrphanReport {
                cluster: cluster.into(),
                vmid: Vmid(vmid),
                pool: None,
                node: Some(format!("node-{vmid}").as_str().into()),
                warning: true,
                message: format!("take it over: {}", acknowledging(&word)),
                word: Some(word),
            }
        };
        let orphans = vec![orphan("a", 201), orphan("b", 201), orphan("b", 202)];
        let report = Report {
            orphans,
            ..Report::default()
        };
        let mut world = World::default();
        let ledger = LedgerFacts {
            orphans_acknowledged: Some("b:201:a, a:200:z".into()),
            ..LedgerFacts::default()
        };
        world.apply(Delta::Ledger(Some(Box::new(ledger))));
        let said = check(&world, &report);
        let objects: Vec<&str> = said.iter().map(|it| it.object.as_str()).collect();
        assert_eq!(objects, ["VM/a/201", "ProxmoxCluster/b"]);
        let line = acknowledging("b:201:a,a:200:z,a:201:a");
        assert_eq!(said[0].commands, [&*line]);
        assert_eq!(said[0].message, format!("take it over: {line}"));
        assert_eq!(said[1].commands, [acknowledging("b:201:a,a:200:z,b:202:a")]);
        let named = "b/201 (node-201), b/202 (node-202)";
        assert!(said[1].message.contains(named), "{}", said[1].message);
    }
}
