use jiff::Timestamp;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn recurring(schedule: &str, hours: i64, zone: &str) -> Recurring {
    let it = Recurring::new(
        schedule,
        SignedDuration::from_hours(hours).into(),
        Some(zone),
    );
    assert_eq!(it.problem(), None);
    it
}

/// From after `from` on, as moments in UTC.
fn starts(it: &Recurring, from: &str, count: usize) -> Vec<String> {
    let all = std::iter::successors(it.next_start(at(from)), |start| it.next_start(*start));
    all.take(count).map(|start| start.to_string()).collect()
}

/// Both changes of three zones, one of them south of the equator and one by half an hour.
#[test]
fn a_start_that_the_clock_leaves_out_is_at_the_change() {
    for (zone, schedule, from, expected) in [
        // 02:00 becomes 03:00 at 01:00 UTC.
        (
            "Europe/Berlin",
            "30 2 * * *",
            "2026-03-27T12:00:00Z",
            [
                "2026-03-28T01:30:00Z",
                "2026-03-29T01:00:00Z",
                "2026-03-30T00:30:00Z",
            ],
        ),
        (
            "America/New_York",
            "30 2 * * *",
            "2026-03-06T12:00:00Z",
            [
                "2026-03-07T07:30:00Z",
                "2026-03-08T07:00:00Z",
                "2026-03-09T06:30:00Z",
            ],
        ),
        // 02:00 becomes 02:30.
        (
            "Australia/Lord_Howe",
            "15 2 * * *",
            "2026-10-02T18:00:00Z",
            [
                "2026-10-03T15:30:00Z",
                "2026-10-04T15:15:00Z",
                "2026-10-05T15:15:00Z",
            ],
        ),
    ] {
        let it = recurring(schedule, 1, zone);
        assert_eq!(starts(&it, from, 3), expected, "{zone}");
        for start in expected {
            let start = at(start);
            assert_eq!(
                it.end(start),
                Some(later(start, SignedDuration::from_hours(1))),
                "{zone}"
            );
            let before = start - SignedDuration::from_secs(1);
            assert_eq!(it.end(before), None, "{zone}");
        }
    }
}

#[test]
fn an_hour_that_comes_twice_opens_once() {
    for (zone, schedule, from, expected) in [
        // 03:00 becomes 02:00 at 01:00 UTC.
        (
            "Europe/Berlin",
            "30 2 * * *",
            "2026-10-24T12:00:00Z",
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        (
            "America/New_York",
            "30 1 * * *",
            "2026-10-31T12:00:00Z",
            ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        // 02:00 becomes 01:30 at 15:00 UTC.
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            "2026-04-03T18:00:00Z",
            ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
        ),
    ] {
        let it = recurring(schedule, 1, zone);
        assert_eq!(starts(&it, from, 2), expected, "{zone}");
        let end = later(at(expected[0]), SignedDuration::from_hours(1));
        assert_eq!(it.end(at(expected[0])), Some(end), "{zone}");
        assert_eq!(it.end(end), None, "{zone}: the hour comes again");
    }
    // Each minute of the hour that comes twice: the second time it is not a start.
    let it = recurring("* 2 * * *", 1, "Europe/Berlin");
    let of_day = starts(&it, "2026-10-24T22:00:00Z", 61);
    assert_eq!(
        (&*of_day[0], &*of_day[59]),
        ("2026-10-25T00:00:00Z", "2026-10-25T00:59:00Z")
    );
    assert_eq!(of_day[60], "2026-10-26T01:00:00Z");
    let last = later(at("2026-10-25T00:59:00Z"), SignedDuration::from_hours(1));
    for minute in 0..59 {
        let again = later(
            at("2026-10-25T01:00:00Z"),
            SignedDuration::from_mins(minute),
        );
        assert_eq!(it.end(again), Some(last), "{again}");
    }
}

/// A duration is elapsed time: eight hours over a change are eight hours.
#[test]
fn a_window_is_as_long_over_a_change_as_on_other_days() {
    let it = recurring("0 22 * * *", 8, "Europe/Berlin");
    for (start, end) in [
        ("2026-03-28T21:00:00Z", "2026-03-29T05:00:00Z"),
        ("2026-10-24T20:00:00Z", "2026-10-25T04:00:00Z"),
    ] {
        assert_eq!(it.end(at(start)), Some(at(end)));
        let before = at(end) - SignedDuration::from_secs(1);
        assert_eq!((it.end(before), it.end(at(end))), (Some(at(end)), None));
    }
}

#[test]
fn the_latest_start_says_how_long_it_is_open() {
    // Each day at noon for two days: never closed.
    let it = recurring("0 12 * * *", 48, "UTC");
    assert_eq!(
        it.end(at("2026-03-04T11:59:59Z")),
        Some(at("2026-03-05T12:00:00Z"))
    );
    assert_eq!(
        it.end(at("2026-03-04T12:00:00Z")),
        Some(at("2026-03-06T12:00:00Z"))
    );
    let both = [
        recurring("0 22 * * *", 4, "UTC"),
        recurring("0 2 * * *", 4, "UTC"),
    ];
    let now = at("2026-03-04T23:00:00Z");
    for (until, expected) in [
        ("2026-03-05T02:00:00Z", true),
        ("2026-03-05T05:59:59Z", true),
        ("2026-03-05T06:00:00Z", true),
        ("2026-03-05T06:00:01Z", false),
    ] {
        assert_eq!(are_open(both.iter(), now, at(until)), expected, "{until}");
    }
    assert!(!are_open(both.iter(), at("2026-03-04T21:59:59Z"), now));
    assert_eq!(end_of(both.iter(), now), Some(at("2026-03-05T02:00:00Z")));
    assert_eq!(
        next_start(both.iter(), now),
        Some(at("2026-03-05T02:00:00Z"))
    );
}

#[test]
fn what_cannot_be_read_names_the_field() {
    let hour = SignedDuration::from_hours(1);
    let problem = |schedule, duration, zone| {
        let it = Recurring::new(schedule, Period(duration), zone);
        let now = at("2026-03-04T12:00:00Z");
        assert_eq!((it.end(now), it.next_start(now)), (None, None));
        let Unreadable { field, problem } = it.problem().unwrap();
        format!("{field}: {problem}")
    };
    assert!(
        problem("@every 1h", hour, None).starts_with("schedule: \"@every 1h\" is not a schedule")
    );
    assert_eq!(
        problem("@daily", hour, Some("Europe/Berlinn")),
        "timeZone: \"Europe/Berlinn\" is no time zone of the IANA database: write one such as Europe/Berlin, or UTC"
    );
    for duration in [
        SignedDuration::from_secs(59),
        LONGEST + SignedDuration::from_secs(1),
    ] {
        let problem = problem("@daily", duration, None);
        assert!(
            problem.starts_with("duration: ") && problem.ends_with(" is not between 1m and 7d"),
            "{problem}"
        );
    }
}

/// What is stored is what was written, and is read again.
#[test]
fn it_is_stored_as_it_was_written() {
    let it = recurring("0 22 * * 1-5", 8, "Europe/Berlin");
    assert_eq!(it.to_string(), "\"0 22 * * 1-5\" (Europe/Berlin) for 8h");
    let stored = serde_json::json!({"schedule": "0 22 * * 1-5", "duration": "8h", "timeZone": "Europe/Berlin"});
    assert_eq!(serde_json::to_value(&it).unwrap(), stored);
    assert_eq!(
        serde_json::from_value::<Recurring>(stored.clone()).unwrap(),
        it
    );
    let mut broken = stored;
    broken["schedule"] = "0 0 30 2 *".into();
    let broken: Recurring = serde_json::from_value(broken).unwrap();
    assert_eq!(broken.problem().unwrap().field, "schedule");
}
