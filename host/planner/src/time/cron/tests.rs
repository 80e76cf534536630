use jiff::civil::{DateTime, datetime};

use super::*;

fn starts(text: &str, after: DateTime, count: usize) -> Vec<String> {
    let cron = Cron::read(text).unwrap();
    let all = std::iter::successors(cron.next(after), |start| cron.next(*start));
    all.take(count).map(|start| start.to_string()).collect()
}

/// What Kubernetes' own parser (robfig/cron) says of 500 schedules: the next start in UTC after a moment, or that it is none.
/// `KPROXIDE_UPDATE=1 cargo test -p kproxide-testkit --test cron` writes the table.
#[test]
fn schedules_start_when_kubernetes_starts_a_cron_job() {
    let table = include_str!("table.tsv");
    let mut counts = (0, 0);
    for line in table.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [text, after, next] = fields[..] else {
            panic!("{line:?}");
        };
        let after: DateTime = after.parse().unwrap();
        match Cron::read(text) {
            Ok(cron) => {
                let found = cron.next(after).unwrap();
                assert_eq!(found.to_string(), next, "{text} after {after}");
                // Nothing lies between, and from there back it is the last one.
                let before = found.checked_sub(1.minute()).unwrap();
                let week = SignedDuration::from_hours(7 * 24);
                assert_eq!(cron.last(found, week), Some(found), "{text}");
                let last = cron.last(before, week);
                assert!(last.is_none_or(|last| last <= after), "{text}: {last:?}");
                counts.0 += 1;
            }
            Err(_) => {
                assert_eq!(next, "-", "{text}");
                counts.1 += 1;
            }
        }
    }
    assert!(counts.0 >= 400 && counts.1 >= 50, "{counts:?}");
}

#[test]
fn a_day_of_either_field_is_enough_where_both_are_set() {
    // Friday, and the 13th.
    assert_eq!(
        starts("0 12 13 * fri", datetime(2026, 3, 1, 0, 0, 0, 0), 3),
        [
            "2026-03-06T12:00:00",
            "2026-03-13T12:00:00",
            "2026-03-20T12:00:00"
        ]
    );
    // A star that leaves days out is set; one that does not is not.
    assert_eq!(
        starts("0 0 */2 * mon", datetime(2026, 3, 1, 0, 0, 0, 0), 3),
        [
            "2026-03-02T00:00:00",
            "2026-03-03T00:00:00",
            "2026-03-05T00:00:00"
        ]
    );
    assert_eq!(
        starts("0 0 13 * *", datetime(2026, 3, 1, 0, 0, 0, 0), 2),
        ["2026-03-13T00:00:00", "2026-04-13T00:00:00"]
    );
}

#[test]
fn words_stand_for_fields() {
    let after = datetime(2026, 3, 4, 5, 6, 0, 0);
    for (word, next) in [
        ("@hourly", "2026-03-04T06:00:00"),
        ("@daily", "2026-03-05T00:00:00"),
        ("@midnight", "2026-03-05T00:00:00"),
        ("@weekly", "2026-03-08T00:00:00"),
        ("@monthly", "2026-04-01T00:00:00"),
        ("@yearly", "2027-01-01T00:00:00"),
        ("@annually", "2027-01-01T00:00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00"),
    ] {
        assert_eq!(starts(word, after, 1), [next], "{word}");
    }
}

#[test]
fn what_is_no_schedule_is_refused_with_the_fix() {
    for (text, problem) in [
        (
            "",
            "it has 0 fields; write five fields, such as \"0 22 * * 1-5\"",
        ),
        ("0 22 * *", "it has 4 fields"),
        ("0 0 22 * * *", "it has 6 fields"),
        (
            "TZ=Europe/Berlin 0 22 * * *",
            "write the time zone into timeZone",
        ),
        (
            "CRON_TZ=UTC 0 22 * * *",
            "write the time zone into timeZone",
        ),
        ("@every 1h", "of the words there are @hourly, @daily"),
        ("@reboot", "of the words there are @hourly, @daily"),
        (
            "60 * * * *",
            "\"60\" is not in the field minute, which goes from 0 to 59",
        ),
        (
            "* 24 * * *",
            "\"24\" is not in the field hour, which goes from 0 to 23",
        ),
        (
            "* * 0 * *",
            "\"0\" is not in the field day of month, which goes from 1 to 31",
        ),
        ("* * * 13 *", "\"13\" is not in the field month"),
        (
            "* * * * 7",
            "\"7\" is not in the field day of week, which goes from 0 to 6",
        ),
        ("* 8-6 * * *", "\"8-6\" is not in the field hour"),
        ("*/0 * * * *", "\"*/0\" is not in the field minute"),
        (
            "* * L * *",
            "\"L\" of the field day of month has no number in \"L\"",
        ),
        ("* * * * mon#1", "has no number in \"mon#1\""),
        ("1, * * * *", "has no number in \"\""),
        ("1-2-3 * * * *", "has no number in \"2-3\""),
        (
            "0 0 30 2 *",
            "it never starts, because no month that it names has such a day",
        ),
        ("0 0 31 4,6,9,11 *", "it never starts"),
    ] {
        let found = Cron::read(text).unwrap_err();
        let begins = format!("{text:?} is not a schedule: ");
        assert!(
            found.starts_with(&begins) && found.contains(problem),
            "{found}"
        );
    }
}

#[test]
fn nothing_is_found_beyond_the_ends_of_time() {
    let cron = Cron::read("* * * * *").unwrap();
    assert_eq!(cron.next(DateTime::MAX), None);
    assert_eq!(
        cron.last(DateTime::MIN, SignedDuration::MAX),
        Some(DateTime::MIN)
    );
}
