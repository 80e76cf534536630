//! VMs of kproxide's own: those without a NodeClaim, the anchors, and what machines show that no other one does.

use std::collections::BTreeMap;

use kproxide_planner::keys;
use kproxide_planner::report::{AnchorReport, AnchorTrouble, OrphanReport, Report};

use super::{Finding, Group, Level, listed, named, reasons};

pub(super) fn check(report: &Report) -> Vec<Finding> {
    let known = report.orphans.iter().filter(|it| it.word.is_none());
    let anchors = report.anchors.iter().filter_map(anchor);
    known
        .map(orphan)
        .chain(unknown(report))
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

/// Machines that wait for a person's word: one finding, and one line to type for all. After a restore of etcd they may be many.
fn unknown(report: &Report) -> Option<Finding> {
    let all = report.orphans.iter();
    let waiting = all.filter_map(|it| Some((it, it.word.as_deref()?)));
    let waiting: Vec<(&OrphanReport, &str)> = waiting.collect();
    let (first, _) = waiting.first()?;
    let (object, message) = match waiting.len() {
        1 => (of_vm(first), first.message.clone()),
        count => {
            let vms = waiting.iter().map(|(it, _)| it.vmid.to_string());
            let vms: Vec<String> = vms.collect();
            let vms: Vec<&str> = vms.iter().map(String::as_str).collect();
            let message = format!(
                "{count} VMs carry markers of kproxide, the Ledger does not know them, and their Nodes are younger than it: {}. kproxide leaves them alone. Let it take over those that are yours, and remove the others",
                listed(&vms)
            );
            (named("ProxmoxCluster", &first.cluster), message)
        }
    };
    let words: Vec<&str> = waiting.iter().map(|(_, word)| *word).collect();
    let command = format!(
        "kubectl annotate --overwrite ledger kproxide {}={}",
        keys::ACKNOWLEDGE_ORPHAN,
        words.join(",")
    );
    let finding = Finding::warning(Group::Proxmox, object, &reasons::MACHINE_UNKNOWN, message);
    Some(finding.typing([command]))
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
            let said = check(&report).into_iter();
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
}
