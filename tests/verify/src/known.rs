//! Failures that somebody knows of and will mend: they are printed by each run, and fail none.

use jiff::civil::Date;

/// At most so many, none of them older than so many days.
pub const MOST: usize = 3;
pub const DAYS: i32 = 14;

const FILE: &str = include_str!("../known-failures.txt");

#[derive(Debug, PartialEq, Eq)]
pub struct Known<'a> {
    pub since: Date,
    pub test: &'a str,
    pub why: &'a str,
}

/// The rows of `tests/verify/known-failures.txt`.
///
/// # Errors
///
/// What is wrong with a row, in words.
pub fn known() -> Result<Vec<Known<'static>>, String> {
    parse(FILE)
}

fn parse(text: &str) -> Result<Vec<Known<'_>>, String> {
    let rows = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known: Result<Vec<_>, _> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let [since, test, why] = cells[..] else {
                return Err(format!(
                    "known-failures.txt: {row:?} is not `YYYY-MM-DD | test | why`"
                ));
            };
            let since = since
                .parse()
                .map_err(|error| format!("known-failures.txt: {since:?}: {error}"))?;
            Ok(Known { since, test, why })
        })
        .collect();
    let known = known?;
    if known.len() > MOST {
        return Err(format!(
            "known-failures.txt has {} rows, at most {MOST}: mend one",
            known.len()
        ));
    }
    Ok(known)
}

/// Those that are too old on this day.
pub fn overdue<'a>(known: &'a [Known<'a>], today: Date) -> Vec<&'a Known<'a>> {
    let is_old = |one: &&Known<'_>| (today - one.since).get_days() > DAYS;
    known.iter().filter(is_old).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_failures_are_few_and_young() {
        let known = known().unwrap();
        let day = crate::changes::day().unwrap();
        assert_eq!(
            overdue(&known, day.parse().unwrap()),
            Vec::<&Known<'_>>::new(),
            "mend these"
        );
    }

    #[test]
    fn a_row_is_a_day_a_test_and_a_reason_and_gets_old_after_14_days() {
        let text = "# comment\n\n2026-02-27 | a::b | slow disk\n2026-02-13 | c | race";
        let known = parse(text).unwrap();
        assert_eq!((known[1].test, known[1].why), ("c", "race"));
        let old = |day: &str| overdue(&known, day.parse().unwrap()).len();
        // 2026 has no 29 February.
        let days = ["2026-02-27", "2026-02-28", "2026-03-13", "2026-03-14"];
        assert_eq!(days.map(old), [0, 1, 1, 2]);
        for wrong in ["2026-02-27 | a", "27.2.2026 | a | b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let four = "2026-02-27 | a | b\n".repeat(4);
        assert!(parse(&four).unwrap_err().contains("4 rows, at most 3"));
    }
}
