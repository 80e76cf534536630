use serde_json::{Value, json};

use super::*;

fn read(value: Value) -> Disruption {
    serde_json::from_value(value).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// What is left for this reason, and by what.
fn left(
    disruption: &Disruption,
    reason: DisruptionReason,
    now: &str,
    pool: Going,
) -> (u32, String) {
    let left = disruption.left(reason, at(now), pool).unwrap();
    (left.machines, left.by.to_string())
}

const FIVE: Going = Going {
    initialized: 5,
    out: 0,
    disrupted: 0,
};

#[test]
fn a_window_without_reasons_is_for_what_nobody_asks_for() {
    use DisruptionReason::{Drifted, Empty, Expired, Maintenance, Replace, Underutilized};
    let night = json!({"schedule": "0 22 * * *", "duration": "8h"});
    let disruption = read(json!({"windows": [night]}));
    let (day, evening) = (at("2026-03-04T12:00:00Z"), at("2026-03-04T22:00:00Z"));
    for reason in [Empty, Underutilized, Expired, Drifted] {
        let closed = disruption.closed_until(reason, day).unwrap();
        assert_eq!(closed.opens, Some(evening), "{reason}");
        assert_eq!(disruption.closed_until(reason, evening), None, "{reason}");
    }
    for reason in [Maintenance, Replace] {
        assert_eq!(disruption.closed_until(reason, day), None, "{reason}");
    }
    // One that names reasons is for those alone, and one open window is enough.
    let disruption = read(json!({"windows": [
        {"reasons": ["Expired", "Replace"], "schedule": "0 22 * * *", "duration": "8h"},
        {"reasons": ["Expired"], "schedule": "0 11 * * *", "duration": "2h"},
    ]}));
    assert_eq!(disruption.closed_until(Empty, day), None);
    assert_eq!(disruption.closed_until(Expired, day), None);
    let opens = disruption.closed_until(Replace, day).unwrap().opens;
    assert_eq!(opens, Some(evening));
}

#[test]
fn the_strictest_active_budget_holds() {
    use DisruptionReason::{Empty, Expired};
    let disruption = read(json!({"budgets": [
        {"nodes": 3},
        {"nodes": "50%", "reasons": ["Empty"]},
        {"nodes": 0, "reasons": ["Expired"], "schedule": "0 8 * * 1-5", "duration": "10h"},
    ]}));
    let (noon, night) = ("2026-03-04T12:00:00Z", "2026-03-04T20:00:00Z");
    assert_eq!(left(&disruption, Empty, noon, FIVE), (3, "3".to_owned()));
    assert_eq!(left(&disruption, Expired, noon, FIVE), (0, "0".to_owned()));
    assert_eq!(left(&disruption, Expired, night, FIVE), (3, "3".to_owned()));
    // A share is rounded up and is less what is out; a number is less what budgets let go.
    let out = Going {
        out: 2,
        disrupted: 1,
        ..FIVE
    };
    assert_eq!(left(&disruption, Empty, noon, out), (1, "50%".to_owned()));
    assert_eq!(left(&disruption, Expired, night, out), (2, "3".to_owned()));
    let more = Going {
        out: 5,
        disrupted: 5,
        ..FIVE
    };
    assert_eq!(left(&disruption, Empty, noon, more), (0, "3".to_owned()));
}

#[test]
fn where_no_budget_is_active_ten_percent_may_go() {
    use DisruptionReason::{Empty, Expired};
    let budgets =
        json!([{"nodes": 2, "reasons": ["Empty"], "schedule": "0 8 * * *", "duration": "1h"}]);
    let disruption = read(json!({"budgets": budgets}));
    let many = Going {
        initialized: 21,
        ..FIVE
    };
    for (reason, now) in [
        (Empty, "2026-03-04T12:00:00Z"),
        (Expired, "2026-03-04T08:30:00Z"),
    ] {
        assert_eq!(left(&disruption, reason, now, FIVE), (1, "10%".to_owned()));
        assert_eq!(left(&disruption, reason, now, many), (3, "10%".to_owned()));
    }
    let active = left(&disruption, Empty, "2026-03-04T08:30:00Z", many);
    assert_eq!(active, (2, "2".to_owned()));
    assert_eq!(
        Disruption::default().left(Empty, at("2026-03-04T08:30:00Z"), many),
        None
    );
}

#[test]
fn numbers_and_shares_are_read_and_written_as_people_write_them() {
    for (written, share) in [
        (json!(1), Share::Nodes(1)),
        (json!("1"), Share::Nodes(1)),
        (json!(5000), Share::Nodes(5000)),
        (json!("0%"), Share::Percent(0)),
        (json!("100%"), Share::Percent(100)),
    ] {
        let read: Share = serde_json::from_value(written).unwrap();
        assert_eq!(read, share);
        let back = serde_json::to_value(read).unwrap();
        assert_eq!(serde_json::from_value::<Share>(back).unwrap(), share);
    }
    for written in [
        json!(-1),
        json!(5001),
        json!("101%"),
        json!("+1"),
        json!("1 %"),
        json!("%"),
        json!(""),
    ] {
        let problem = serde_json::from_value::<Share>(written.clone()).unwrap_err();
        let problem = problem.to_string();
        assert!(
            problem.contains("is no number of machines: write 0 to 5000"),
            "{written}: {problem}"
        );
    }
}

/// One that has a part of its time is not one that always holds.
#[test]
fn a_budget_that_lacks_a_part_of_its_time_cannot_be_read() {
    for (time, field) in [
        (json!({"schedule": "@daily"}), "duration"),
        (json!({"duration": "1h"}), "schedule"),
        (json!({"timeZone": "Europe/Berlin"}), "schedule"),
    ] {
        let mut budget = time.clone();
        budget["nodes"] = 1.into();
        let disruption = read(json!({"budgets": [budget]}));
        let problems: Vec<_> = disruption
            .times()
            .filter_map(|(at, it)| Some((at, it.problem()?.field)))
            .collect();
        assert_eq!(
            problems,
            [("disruption.budgets[0]".to_owned(), field)],
            "{time}"
        );
    }
}

#[test]
fn what_says_nothing_is_written_as_nothing() {
    let written = serde_json::to_value(Disruption::default()).unwrap();
    assert_eq!(written, json!({"oldFirst": false}));
    let full = json!({"oldFirst": true,
        "windows": [{"reasons": ["Expired"], "schedule": "@daily", "duration": "2h", "timeZone": "Europe/Berlin"}],
        "budgets": [{"nodes": "10%"}, {"nodes": 1, "reasons": ["Empty"], "schedule": "@daily", "duration": "2h"}]});
    assert_eq!(serde_json::to_value(read(full.clone())).unwrap(), full);
    assert_eq!(read(full).windows_for(DisruptionReason::Expired).count(), 1);
}
