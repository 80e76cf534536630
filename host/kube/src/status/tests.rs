use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// What stands of a policy that answers with this digest, at this second and with this error, after what stood before.
fn after(
    before: &[PolicyStatus],
    (second, digest, error): (i64, &str, Option<&str>),
) -> Vec<PolicyStatus> {
    let now = at(second);
    let text = format!("{now:.0}");
    let policy = PolicyStatus {
        kind: "labels".to_owned(),
        name: "mine".to_owned(),
        digest: Some(digest.to_owned()),
        since: text.clone(),
        last_error: error.map(str::to_owned),
        last_error_time: error.map(|_| text),
        ..PolicyStatus::default()
    };
    since_before(vec![policy], before, now)
}

#[test]
fn the_last_error_of_a_policy_stays_and_is_written_at_most_every_ten_minutes() {
    let mut stands = Vec::new();
    let mut check = |found, (since, error): (i64, Option<(&str, i64)>)| {
        stands = after(&stands, found);
        let shown = |second| format!("{:.0}", at(second));
        let it = stands[0].clone();
        let error = error.map(|(text, second)| (text.to_owned(), shown(second)));
        let expected = (shown(since), error);
        assert_eq!((it.since, it.last_error.zip(it.last_error_time)), expected);
    };
    check((0, "a", None), (0, None));
    check((10, "a", Some("x")), (0, Some(("x", 10))));
    check((20, "a", Some("x")), (0, Some(("x", 10))));
    check((30, "a", Some("y")), (0, Some(("x", 10))));
    check((40, "a", None), (0, Some(("x", 10))));
    check((700, "a", Some("y")), (0, Some(("y", 700))));
    check((710, "b", None), (710, None));
    check((720, "b", Some("y")), (710, Some(("y", 720))));
}

fn judged(reason: &'static str) -> Condition<'static> {
    Condition {
        kind: READY,
        status: ConditionStatus::False,
        reason,
        message: "",
        is_ripe: true,
        is_bad: true,
    }
}

fn ready() -> Condition<'static> {
    Condition {
        status: ConditionStatus::True,
        is_bad: false,
        ..judged("Ready")
    }
}

/// What stands after each finding, as its reason, and how often its status turned.
fn stands(found: &[(i64, Condition<'_>)]) -> (Vec<String>, usize) {
    let mut writer = StatusWriter::default();
    let key = ("nodepools", "workers".to_owned());
    let (mut conditions, mut turned) = (Vec::new(), 0);
    let mut reasons = Vec::new();
    for (second, condition) in found {
        let found = Found {
            generation: 3,
            conditions: std::slice::from_ref(condition),
        };
        let (after, turns) = writer.settled(&key, conditions, found, at(*second));
        for turn in turns.iter().filter(|turn| turn.counts()) {
            let memory = (key.clone(), turn.kind);
            writer
                .changes
                .entry(memory)
                .or_default()
                .push_back(at(*second));
        }
        turned += turns.iter().filter(|it| it.from != Some(it.to)).count();
        assert_eq!(after.len(), 1);
        assert!(after[0].observed_generation.is_none_or(|it| it == 3));
        reasons.push(after[0].reason.clone());
        conditions = after;
    }
    (reasons, turned)
}

#[test]
fn only_a_change_of_status_moves_the_time() {
    let mut writer = StatusWriter::default();
    let mut conditions = Vec::new();
    for (second, condition, since) in [
        (1, judged("TemplateMissing"), 1),
        (2, judged("StorageFull"), 1),
        (3, ready(), 3),
    ] {
        let key = ("nodepools", "workers".to_owned());
        let found = Found {
            generation: 1,
            conditions: std::slice::from_ref(&condition),
        };
        (conditions, _) = writer.settled(&key, conditions, found, at(second));
        let since = format!("1970-01-01T00:00:0{since}Z");
        assert_eq!(conditions[0].last_transition_time, since);
        assert_eq!(conditions[0].reason, condition.reason);
    }
}

#[test]
fn what_may_pass_counts_after_a_minute_and_what_is_missing_at_once() {
    let young = || Condition {
        is_ripe: false,
        ..judged("Unreachable")
    };
    let away = || judged("Unreachable");
    let (reasons, turned) = stands(&[
        (0, ready()),
        (10, young()),
        (69, young()),
        (70, away()),
        (75, ready()),
        (80, young()),
        (100, ready()),
        (139, young()),
        (198, young()),
        (199, away()),
        (200, judged("PoolMissing")),
    ]);
    let expected = [
        "Ready",
        "Ready",
        "Ready",
        "Unreachable",
        "Ready",
        "Ready",
        "Ready",
        "Ready",
        "Ready",
        "Unreachable",
        "PoolMissing",
    ];
    assert_eq!(reasons, expected);
    assert_eq!(turned, 4);
    assert_eq!(stands(&[(0, judged("PoolMissing"))]).0, ["PoolMissing"]);
    let (reasons, _) = stands(&[(0, young()), (59, young()), (60, away())]);
    assert_eq!(reasons, ["NotJudgedYet", "NotJudgedYet", "Unreachable"]);
}

#[test]
fn a_condition_turns_24_times_an_hour_at_most_and_says_of_nothing_wrongly_that_it_is_well() {
    let found = |second: i64| match second % 2 {
        0 => (second, ready()),
        _ => (second, judged("PoolMissing")),
    };
    let (_, turned) = stands(&(0..3_600).map(found).collect::<Vec<_>>());
    assert_eq!(turned, 24);
    // What is well again is said 10 minutes later at most.
    let restless = (0..14).map(found);
    let quiet = [14, 611, 612].map(|second| (second, ready()));
    let bad = [613].map(|second| (second, judged("PoolMissing")));
    let (reasons, _) = stands(&restless.chain(quiet).chain(bad).collect::<Vec<_>>());
    assert_eq!(
        reasons[13..],
        [
            "PoolMissing",
            "PoolMissing",
            "PoolMissing",
            "Ready",
            "PoolMissing"
        ]
    );
}

#[test]
fn a_text_that_changes_all_the_time_does_not_keep_the_status_waiting() {
    let texts: Vec<String> = (0..100).map(|second| second.to_string()).collect();
    let text = |(second, message)| {
        let condition = Condition {
            message,
            ..judged("LaunchesFail")
        };
        (second, condition)
    };
    let mut found: Vec<_> = (0..).zip(texts.iter().map(|it| &**it)).map(text).collect();
    found.push((100, ready()));
    let (reasons, turned) = stands(&found);
    assert_eq!(
        (&*reasons[99], &*reasons[100], turned),
        ("LaunchesFail", "Ready", 2)
    );
}

#[test]
fn what_is_no_longer_set_is_removed() {
    assert_eq!(
        replacing(&json!({"a": 1, "b": 2}), json!({"a": 3})),
        json!({"a": 3, "b": null})
    );
}
