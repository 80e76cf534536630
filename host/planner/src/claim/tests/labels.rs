//! S7: somebody changes kproxide's own labels of a Node in service.

use jiff::SignedDuration;

use super::fixture::*;
use crate::claim::*;
use crate::facts::Labels;

/// It says another pool's name, and lacks its claim's. Its user's own label is another than kproxide wrote.
fn changed() -> Case {
    Case::new(Phase::Initialized).with(|case| {
        case.claim.spec.labels = [("team".to_owned(), "red".to_owned())].into();
        case.hint.node_changed = true;
        case.observed.node = node(|node| {
            node.labels
                .insert("kproxide.dev/pool".to_owned(), "other".to_owned());
            node.labels.remove("kproxide.dev/claim");
            node.labels.insert("team".to_owned(), "blue".to_owned());
        });
    })
}

fn patched(case: &Case) -> Labels {
    let Step::Do(Effect::PatchNode(node, patch)) = case.next() else {
        panic!("{:?}", case.next());
    };
    assert_eq!(node.name.as_str(), "workers-a");
    let labels = patch.labels.clone();
    let of_labels = NodePatch {
        labels: labels.clone(),
        ..NodePatch::default()
    };
    assert_eq!(*patch, of_labels);
    labels
}

#[test]
fn s7_labels_of_ours_are_said_and_put_right_and_no_others() {
    let mut case = changed();
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    let note = change.note.as_ref().unwrap();
    assert_eq!((note.warning, note.reason), (true, LABELS_RESTORED));
    assert!(
        note.message.contains("Node workers-a")
            && note
                .message
                .contains("kproxide.dev/pool is other and not workers")
            && note
                .message
                .contains("kproxide.dev/claim is gone, which was workers-a")
            && !note.message.contains("team"),
        "{}",
        note.message
    );
    case.hint.restored.said = Some(case.now);
    let expected = [
        ("kproxide.dev/pool", "workers"),
        ("kproxide.dev/claim", "workers-a"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(patched(&case), expected.into());
    // The Node is as it was, or goes.
    for change in [
        |node: &mut crate::facts::NodeFacts| node.deleting = true,
        |node: &mut crate::facts::NodeFacts| {
            node.labels
                .insert("kproxide.dev/pool".to_owned(), "workers".to_owned());
        },
    ] {
        case.observed.node = node(change);
        assert!(
            matches!(case.next(), Step::Wait { until: None, .. }),
            "{:?}",
            case.next()
        );
    }
}

#[test]
fn s7_they_are_put_right_once_a_minute_and_said_once_an_hour() {
    let mut case = changed();
    let began = case.now;
    case.hint.restored = Restored {
        written: Some(began),
        said: Some(began),
    };
    let due = began + SignedDuration::from_secs(60);
    case.now = due - SignedDuration::from_secs(1);
    assert!(
        matches!(case.next(), Step::Wait { until: Some(at), .. } if at == due),
        "{:?}",
        case.next()
    );
    case.now = due;
    assert_eq!(patched(&case).len(), 2);
    case.now = began + SignedDuration::from_secs(60 * 60 - 1);
    assert_eq!(patched(&case).len(), 2);
    case.now = began + SignedDuration::from_hours(1);
    assert!(
        matches!(case.next(), Step::Record { .. }),
        "{:?}",
        case.next()
    );
}

/// The VM was restarted, and is to be recorded as recovered: a label that never stays right does not keep that from happening.
#[test]
fn s7_a_label_that_changes_all_the_time_keeps_nothing_else_from_being_done() {
    let case = changed().with(|case| {
        case.hint.restored.written = Some(case.now);
        case.claim.status.started_at = Some(case.now - SignedDuration::from_hours(1));
        case.claim.status.intent = Some(crate::facts::Intent {
            op: Op::Start,
            attempt: 1,
            epoch: "1".to_owned(),
        });
    });
    let Step::Record { change, .. } = case.next() else {
        panic!("{:?}", case.next());
    };
    assert_eq!(change.intent, Change::Clear);
}
