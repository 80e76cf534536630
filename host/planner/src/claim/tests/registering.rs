//! What a Node waits for until it is in service: CSI drivers, and the devices of its type.

use super::fixture::*;
use super::joining::patch;
use crate::claim::*;
use crate::facts::ClaimStatus;
use crate::keys::UNREGISTERED_TAINT;

/// Pods that come before a CSI driver has registered do not count against its attach limit.
#[test]
fn the_taint_waits_for_csi_drivers_until_60_s_after_ready() {
    let waiting = |now: i64, tainted: bool| {
        let mut case = Case::new(Phase::Registered).with(|case| {
            case.observed.node = node(|node| {
                if tainted {
                    node.taints.push(taint(UNREGISTERED_TAINT));
                }
            });
        });
        case.hint.registering = Registering {
            drivers: vec!["a.example.com".into(), "b.example.com".into()],
            until: Some(at(60)),
        };
        case.now = at(now);
        case
    };
    let Step::Wait { until, .. } = waiting(59, true).next() else {
        panic!("{:?}", waiting(59, true).next());
    };
    assert_eq!(until, Some(at(60)));
    assert!(patch(&waiting(60, true)).remove_unregistered);
    let in_service = waiting(61, false);
    assert_eq!(in_service.recorded().phase, Phase::Initialized);
    let step = format!("{:?}", in_service.next());
    assert!(
        step.contains("not registered there: a.example.com, b.example.com."),
        "{step}"
    );
    let mut all_there = waiting(59, true);
    all_there.hint.registering.drivers.clear();
    assert!(patch(&all_there).remove_unregistered);
}

#[test]
fn r9_a_node_comes_into_service_when_it_shows_its_devices_or_at_the_join_deadline() {
    let case = |shown: &[(&str, i64)], now: jiff::Timestamp| {
        let mut case = Case::new(Phase::Registered).with(|case| {
            case.observed.node = node(|node| {
                for (device, amount) in shown {
                    node.allocatable.set_extended((*device).into(), *amount);
                }
            });
        });
        case.hint.devices = vec!["example.com/gpu".into(), "example.com/nic".into()];
        case.now = now;
        case
    };
    let late = |shown: &[(&str, i64)]| {
        let mut early = case(shown, at(60));
        early.claim.status = early.recorded();
        let Step::Wait {
            until: Some(until),
            why,
        } = early.next()
        else {
            panic!("{:?}", early.next());
        };
        (until, why, early.claim.status)
    };
    let (until, why, told) = late(&[]);
    assert!(why.contains("example.com/gpu, example.com/nic"), "{why}");
    let one = [("example.com/gpu", 2), ("example.com/nic", 0)];
    let (_, why, _) = late(&one);
    assert!(
        why.contains("show example.com/nic yet") && why.contains(&format!("until {until:.0}")),
        "{why}"
    );
    // The condition says so, and follows. One Event does.
    let ready = |status: &ClaimStatus| {
        let mut conditions = status.conditions.iter();
        let ready = conditions.find(|it| it.kind == Condition::Ready);
        ready.cloned().unwrap()
    };
    assert_eq!(ready(&told).reason, "AwaitsDevices");
    assert_eq!(ready(&told).word(), "Unknown");
    let told_once = |case: &Case| {
        let Step::Record { change, .. } = case.next() else {
            panic!("{:?}", case.next());
        };
        change.note.map(|note| (note.reason, note.warning))
    };
    assert_eq!(
        told_once(&case(&[], at(60))),
        Some(("AwaitsDevices", false))
    );
    let mut fewer = case(&one, at(70));
    fewer.claim.status = told;
    assert_eq!(told_once(&fewer), None);
    assert_eq!(ready(&fewer.recorded()).message, why);
    let overdue = case(&one, until);
    assert_eq!(overdue.recorded().phase, Phase::Initialized);
    let step = format!("{:?}", overdue.next());
    assert!(
        step.contains("DevicesMissing") && step.contains("example.com/nic"),
        "{step}"
    );

    let both = case(&[("example.com/gpu", 2), ("example.com/nic", 1)], at(60));
    assert_eq!(both.recorded().phase, Phase::Initialized);
    let step = format!("{:?}", both.next());
    assert!(!step.contains("DevicesMissing"), "{step}");
}
