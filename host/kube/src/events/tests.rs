use jiff::Timestamp;

use super::aggregate::{Aggregate, Write};
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn told(pod: &str, note: &str) -> Event {
    let about = About::pod(&PodKey::new("shop", pod), &"u1".into());
    Event::warning(about, "NotTriggerScaleUp", note.to_owned())
}

/// What is written: `first`, `again N`, or `-`.
fn written(aggregate: &mut Aggregate, event: Event, second: i64) -> String {
    match aggregate.admit(event, at(second)) {
        Some(Write::First { .. }) => "first".to_owned(),
        Some(Write::Again { count, .. }) => format!("again {count}"),
        None => "-".to_owned(),
    }
}

#[test]
fn repetitions_become_a_series_that_is_written_once_a_minute() {
    let mut aggregate = Aggregate::default();
    let mut check = |second: i64, expected: &str| {
        assert_eq!(
            written(&mut aggregate, told("a", "too big"), second),
            expected,
            "at {second}"
        );
    };
    check(0, "first");
    check(10, "-");
    check(20, "-");
    check(60, "again 4");
    check(70, "-");
    check(120, "again 6");
    // A long silence ends the series.
    check(120 + 361, "first");
}

#[test]
fn another_note_is_another_event() {
    let mut aggregate = Aggregate::default();
    assert_eq!(written(&mut aggregate, told("a", "too big"), 0), "first");
    assert_eq!(written(&mut aggregate, told("a", "no room"), 0), "first");
}

#[test]
fn one_object_is_told_only_so_much_of_a_reason_and_others_are_not_held_up_by_it() {
    let mut aggregate = Aggregate::default();
    let written_ones = (0..100)
        .filter(|n| written(&mut aggregate, told("a", &n.to_string()), 0) == "first")
        .count();
    assert_eq!(written_ones, 10);
    assert_eq!(written(&mut aggregate, told("b", "x"), 0), "first");
    assert_eq!(written(&mut aggregate, told("a", "later"), 29), "-");
    assert_eq!(written(&mut aggregate, told("a", "later"), 31), "first");
}

fn of_pool(reason: &'static str, note: &str) -> Event {
    let pool = About::pool(&"workers".into(), &"u2".into());
    Event::warning(pool, reason, note.to_owned())
}

/// Launches used up what the object might get, and `PolicyRefused` was never told.
#[test]
fn w6_events_of_one_reason_do_not_starve_those_of_another() {
    let mut aggregate = Aggregate::default();
    let launched: Vec<String> = (0..20)
        .map(|n| written(&mut aggregate, of_pool("ScaledUpGroup", &n.to_string()), 0))
        .collect();
    assert_eq!(launched.iter().filter(|it| *it == "first").count(), 10);
    for reason in ["PolicyRefused", "PolicyFallback"] {
        assert_eq!(written(&mut aggregate, of_pool(reason, "x"), 0), "first");
    }
}

#[test]
fn w6_what_was_dropped_is_told_later_with_its_own_time_and_only_the_last_of_each_reason() {
    let mut aggregate = Aggregate::default();
    for n in 0..200 {
        written(&mut aggregate, told(&format!("p{n}"), "x"), 0);
    }
    let mut dropped = |reason, note| {
        assert_eq!(written(&mut aggregate, of_pool(reason, note), 0), "-");
    };
    dropped("PolicyRefused", "one");
    dropped("PolicyRefused", "two");
    dropped("PolicyFallback", "three");
    assert_eq!(written(&mut aggregate, told("late", "x"), 0), "-");
    let mut due = |second| {
        let due = aggregate.due(at(second)).into_iter();
        due.map(|write| match write {
            Write::First {
                event, at: told, ..
            } if told == at(0) => event.note,
            other => panic!("{other:?}"),
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(due(0), [""; 0], "there is no room yet");
    assert_eq!(due(30), ["three", "two"]);
    assert_eq!(due(60), [""; 0], "it is told once");
}

#[test]
fn w6_a_write_that_failed_is_tried_again_but_not_for_ever_nor_after_the_next_word() {
    let mut aggregate = Aggregate::default();
    let mut failed = |note: &str, second| {
        let write = aggregate.admit(of_pool("PolicyRefused", note), at(second));
        aggregate.forget(write.unwrap());
    };
    failed("a", 0);
    assert_eq!(aggregate.due(at(4000)), []);
    let write = aggregate
        .admit(of_pool("PolicyRefused", "b"), at(4001))
        .unwrap();
    aggregate.forget(write);
    assert_eq!(
        written(&mut aggregate, of_pool("PolicyRefused", "c"), 4002),
        "first"
    );
    assert_eq!(aggregate.due(at(4003)), []);
    assert!(!aggregate.is_waiting());
}

#[test]
fn a_flood_over_many_objects_is_bounded() {
    let mut aggregate = Aggregate::default();
    let written_ones = (0..30_000)
        .filter(|n| written(&mut aggregate, told(&format!("p{n}"), "x"), 0) == "first")
        .count();
    assert_eq!(written_ones, 200);
}

#[test]
fn a_write_that_failed_is_tried_again_as_a_first_one() {
    let mut aggregate = Aggregate::default();
    let write = aggregate.admit(told("a", "x"), at(0)).unwrap();
    aggregate.forget(write);
    assert_eq!(written(&mut aggregate, told("a", "x"), 1), "first");
}

/// What kube-apiserver's validation of `events.k8s.io/v1` asks for.
#[test]
fn the_object_on_the_wire() {
    let long = "é".repeat(1000);
    let reporter = Reporter {
        controller: "kproxide.dev/kproxide".to_owned(),
        instance: "kproxide-0".to_owned(),
    };
    let wire = |event: &Event| {
        serde_json::to_value(object(&reporter, "a.0", event, MicroTime(at(0)))).unwrap()
    };
    let value = wire(&told("a", &long));
    assert_eq!(value["metadata"]["namespace"], "shop");
    assert_eq!(value["eventTime"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(
        (&value["reason"], &value["action"]),
        (&json!("NotTriggerScaleUp"), &json!("ScaleUp"))
    );
    assert_eq!(value["type"], "Warning");
    assert_eq!(value["regarding"]["kind"], "Pod");
    assert!(value["note"].as_str().unwrap().len() <= 1024);

    let value = wire(&Event::normal(
        About::node(&"n".into()),
        "ScaleDown",
        "x".to_owned(),
    ));
    assert_eq!(value["metadata"]["namespace"], "default");
    assert_eq!(value["regarding"].get("namespace"), None);
    assert_eq!(value["regarding"]["uid"], "n");
}

/// Reasons that nothing emits any more would be looked for in vain.
#[test]
fn every_reason_with_an_action_is_said_somewhere() {
    fn sources(folder: &std::path::Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                sources(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("kube/src/events/mod.rs")
                && !path.ends_with("tests.rs")
            {
                text.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let host = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for folder in ["controller/src", "kube/src", "planner/src"] {
        sources(&host.join(folder), &mut text);
    }
    for (reason, action_of_it) in ACTIONS {
        assert!(text.contains(&format!("\"{reason}\"")), "{reason}");
        assert_eq!(action(reason), action_of_it);
    }
    assert_eq!(action("Registered"), "Registered");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_holds_nobody_up() {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        std::future::pending::<()>().await;
        Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::empty()))
    });
    let clock = Clock::starting_at(at(0));
    let (events, task) = writer(Client::from_service(silent), clock, "kproxide", "a", false);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(task);
    for n in 0..5000 {
        events.say(told(&format!("p{n}"), "x"));
    }
    drop(events);
    while tasks.join_next().await.is_some() {}
}
