//! Which number and which hypervisor an anchor gets, and when no more are made.

use super::*;

/// What is told from the tenth minute on, and all that is made.
fn told_and_made(
    kproxide: &mut Kproxide,
    proxmox: &mut Proxmox,
    minutes: i64,
    after: impl Fn(&mut Proxmox, &[AnchorStep]),
) -> (Vec<String>, Vec<AnchorStep>) {
    let (mut told, mut made) = (Vec::new(), Vec::new());
    for minute in 10..minutes {
        let plan = kproxide.tick(proxmox, NOW + minute * MINUTE);
        assert!(removes(&plan), "{minute}");
        for report in plan.report.anchors {
            assert_eq!(report.trouble, AnchorTrouble::Missing, "{report:?}");
            told.push(report.message);
        }
        after(proxmox, &plan.anchors);
        made.extend(plan.anchors.into_iter().filter(|step| step.from.is_none()));
    }
    (told, made)
}

fn numbers(steps: &[AnchorStep]) -> BTreeSet<u32> {
    steps.iter().map(|step| step.vmid.0).collect()
}

#[test]
fn f113_numbers_that_others_have_out_of_sight_are_passed_over_one_after_the_other() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.anchors.clear();
    proxmox.hidden = (2996..=2999).map(Vmid).collect();
    let (told, _) = told_and_made(&mut kproxide, &mut proxmox, 40, |_, _| {});
    assert_eq!(proxmox.anchors.keys().collect::<Vec<_>>(), [&Vmid(2995)]);
    assert!(told[0].contains("cannot see has VMID 2999"), "{}", told[0]);
    assert!(told[0].contains("now tries VM 2998"), "{}", told[0]);
    assert_eq!(told.len(), 4, "{told:?}");
}

/// The range was widened since, and what was its end is somebody's.
#[test]
fn after_the_last_number_it_goes_on_from_the_top() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.anchors.clear();
    proxmox.hidden = [Vmid(2999)].into();
    kproxide.scene.cluster.vmid_range.last = Vmid(3999);
    let _ = told_and_made(&mut kproxide, &mut proxmox, 20, |_, _| {});
    assert_eq!(proxmox.anchors.keys().collect::<Vec<_>>(), [&Vmid(3999)]);
}

/// Its pool does not show them to the token: each that is made looks like somebody else's.
#[test]
fn f113_anchors_that_the_token_does_not_see_are_made_a_few_times_at_most() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.anchors.clear();
    let hide = |proxmox: &mut Proxmox, _: &[AnchorStep]| {
        let made = std::mem::take(&mut proxmox.anchors);
        proxmox.hidden.extend(made.into_keys());
    };
    let (told, made) = told_and_made(&mut kproxide, &mut proxmox, 240, hide);
    assert_eq!(numbers(&made), (2994..=2999).collect());
    assert_eq!(proxmox.hidden.len(), MOST_TRIED);
    let last = told.last().unwrap();
    assert!(last.contains("VM.Audit on /pool/kproxide"), "{last}");
    let hypervisors: BTreeSet<_> = made.iter().map(|step| &*step.hypervisor).collect();
    assert!(hypervisors.len() > 1, "{hypervisors:?}");
}

/// Somebody's tool sets all descriptions anew.
#[test]
fn f113_anchors_that_lose_their_lines_are_made_a_few_times_at_most() {
    let (mut kproxide, mut proxmox) = original();
    let strip = |proxmox: &mut Proxmox, _: &[AnchorStep]| {
        let made = std::mem::take(&mut proxmox.anchors);
        proxmox.bare.extend(made.into_keys());
    };
    let (told, made) = told_and_made(&mut kproxide, &mut proxmox, 240, strip);
    assert_eq!(proxmox.bare.len(), MOST_STRIPPED);
    assert_eq!(numbers(&made), (2996..=2998).collect());
    let last = told.last().unwrap();
    assert!(last.contains("4 VMs of resource pool kproxide"), "{last}");
    assert!(last.contains("(2996, 2997, 2998, 2999)"), "{last}");

    // They are deleted, and nothing sets descriptions any more.
    proxmox.bare.clear();
    let _ = kproxide.run(&mut proxmox, NOW + 240 * MINUTE..NOW + 250 * MINUTE);
    assert_eq!(proxmox.anchors.len(), 1);
}

#[test]
fn an_anchor_that_no_hypervisor_takes_is_told() {
    let (mut kproxide, mut proxmox) = original();
    proxmox.anchors.clear();
    kproxide.scene.cluster.hypervisors.include = vec!["nowhere".into()];
    let (told, made) = told_and_made(&mut kproxide, &mut proxmox, 20, |_, _| {});
    assert_eq!(made, []);
    for message in told {
        assert!(message.contains("spec.hypervisors"), "{message}");
    }
}

/// Proxmox does not always show the names of VMs on a hypervisor that is off.
#[test]
fn a_guest_without_a_name_is_waited_for_within_the_range() {
    for (vmid, is_waited_for) in [(2990, true), (4000, false)] {
        let (kproxide, _) = original();
        let mut late = kproxide.restarted("two");
        let mut guest = late.scene.inventory.guests.values().next().unwrap().clone();
        (guest.name, guest.hypervisor) = (None, "gamma".into());
        late.scene.inventory.guests.insert(Vmid(vmid), guest);
        let mut proxmox = Proxmox {
            is_off: true,
            ..Proxmox::default()
        };
        let plan = late.run(&mut proxmox, NOW + HOUR..NOW + HOUR + 13 * MINUTE);
        assert_eq!(removes(&plan), !is_waited_for, "VM {vmid}");
    }
}
