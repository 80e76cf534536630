//! Anchors that Proxmox does not let anybody move on.

use super::*;

#[test]
fn f113_an_anchor_that_cannot_be_moved_on_is_told_and_holds_up_nobody() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.is_locked = true;
    let mut told = Vec::new();
    for minute in 10..30 {
        let plan = kproxide.tick(&mut proxmox, NOW + minute * MINUTE);
        assert!(removes(&plan), "{minute}");
        told.extend(plan.report.anchors);
    }
    assert!(told.len() >= 3, "{told:?}");
    for report in &told {
        assert_eq!(report.trouble, AnchorTrouble::Stuck, "{report:?}");
        assert!(report.message.contains("qm unlock 2999"), "{report:?}");
    }
    proxmox.is_locked = false;
    let _ = kproxide.run(&mut proxmox, NOW + 30 * MINUTE..NOW + 35 * MINUTE);
    for minute in 35..60 {
        let plan = kproxide.tick(&mut proxmox, NOW + minute * MINUTE);
        assert_eq!(plan.report.anchors, [], "{minute}");
    }
}

/// What was not tried yet is not told to have failed: after a word, and after the Ledger was deleted.
#[test]
fn what_is_taken_for_ours_is_moved_on_without_a_warning() {
    let (mut kproxide, proxmox) = original();
    let word = acknowledgement(&CLUSTER.into(), &proxmox.anchors[&Vmid(2999)]);
    let mut forgotten = kproxide.clone();
    forgotten.scene.ledger.anchors.clear();
    let row = &mut kproxide.scene.ledger.anchors[0];
    (row.mark, row.next) = (None, "9-before".to_owned().try_into().unwrap());
    kproxide.scene.ledger.anchor_acknowledged = Some(word.into());
    for mut kproxide in [kproxide, forgotten] {
        let mut proxmox = proxmox.clone();
        let before = proxmox.anchors[&Vmid(2999)].sequence;
        for minute in 10..30 {
            let plan = kproxide.tick(&mut proxmox, NOW + minute * MINUTE);
            assert!(removes(&plan), "{minute}");
            assert_eq!(plan.report.anchors, [], "{minute}");
        }
        assert!(proxmox.anchors[&Vmid(2999)].sequence > before);
    }
}
