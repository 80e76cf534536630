//! Anchors that stand where the copy would not make one.

use super::*;

/// A copy of an original that has moved its anchor on since, and the original's anchor at that number.
fn copy_beside(vmid: Vmid) -> (Kproxide, Proxmox) {
    let (mut original, mut proxmox) = original();
    let copy = original.restarted("copy");
    let _ = original.run(&mut proxmox, NOW + 10 * MINUTE..NOW + HOUR);
    let mark = proxmox.anchors.remove(&Vmid(2999)).unwrap();
    proxmox.anchors.insert(vmid, mark);
    (copy, proxmox)
}

fn assert_is_held(mut copy: Kproxide, mut proxmox: Proxmox) {
    for minute in 0..30 {
        let plan = copy.tick(&mut proxmox, NOW + HOUR + minute * MINUTE);
        assert!(!removes(&plan) && plan.anchors.is_empty(), "{minute}");
        let report = &plan.report.anchors[0];
        assert_eq!(report.trouble, AnchorTrouble::Foreign, "{report:?}");
    }
}

/// The original widened its range after the backup, and made its anchor anew in what is new.
#[test]
fn f113_a_copy_sees_the_anchor_that_stands_outside_its_own_range() {
    let (copy, proxmox) = copy_beside(Vmid(3500));
    assert!(copy.scene.cluster.vmid_range.last < Vmid(3500));
    assert_is_held(copy, proxmox);
}

/// The original's machine of that number went after the backup.
#[test]
fn f113_a_copy_sees_the_anchor_whose_number_it_claims() {
    let (mut copy, mut proxmox) = copy_beside(Vmid(3500));
    let claims = copy.world(&proxmox);
    let vmid = claims.claims().values().next().unwrap().spec.vmid;
    let mark = proxmox.anchors.remove(&Vmid(3500)).unwrap();
    proxmox.anchors.insert(vmid, mark);
    copy.scene.inventory.guests.remove(&vmid);
    copy.scene.machine("m1", "alpha");
    assert_is_held(copy, proxmox);
}

#[test]
fn f113_what_is_called_like_an_anchor_and_cannot_be_read_is_waited_for_wherever_it_stands() {
    let (mut copy, mut proxmox) = copy_beside(Vmid(3500));
    proxmox.is_off = true;
    let plan = copy.run(&mut proxmox, NOW + HOUR..NOW + 2 * HOUR);
    assert!(!removes(&plan) && plan.anchors.is_empty());
    let report = &plan.report.anchors[0];
    assert_eq!(report.trouble, AnchorTrouble::Unproven);
    assert!(report.message.contains("VM 3500"), "{}", report.message);
}

/// A name is a reason to look, and nothing else.
#[test]
fn f75_a_name_alone_moves_and_removes_nothing() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.bare = [Vmid(2998), Vmid(3500)].into();
    let suspects = crate::check::orphans::suspects(&kproxide.world(&proxmox));
    assert!(suspects.contains_key(&(CLUSTER.into(), Vmid(3500))));
    for minute in 10..60 {
        let plan = kproxide.tick(&mut proxmox, NOW + minute * MINUTE);
        assert!(plan.anchors.iter().all(|step| step.vmid == Vmid(2999)));
        assert_eq!(
            (&plan.adoptions[..], &plan.report.orphans[..]),
            (&[][..], &[][..])
        );
    }
}

/// A machine of ours outside the range is seen if somebody calls it an anchor: it is as little ours to remove as before.
#[test]
fn a_machine_outside_the_range_is_not_adopted_for_its_name() {
    let (kproxide, mut proxmox) = original();
    proxmox.bare = [Vmid(3500)].into();
    let mut world = kproxide.world(&proxmox);
    let ours = OrphanLook::Ours(Box::new(crate::facts::OrphanFacts {
        claim_uid: "uid-of-before".into(),
        nonce: "n".into(),
        name: Some("workers-a".into()),
        hypervisor: "gamma".into(),
        smbios_uuid: None,
        milli_cores: 1000,
        memory_bytes: 1 << 30,
        tombstoned: true,
        lock: None,
        protected: false,
        snapshot: None,
    }));
    world.apply(Delta::Orphans(CLUSTER.into(), [(Vmid(3500), ours)].into()));
    let plan = plan(&world, at(NOW + 15 * MINUTE), Limits::default(), reasonable);
    assert_eq!(plan.adoptions, []);
    let message = &plan.report.orphans[0].message;
    assert!(message.contains("spec.vmidRange"), "{message}");
}
