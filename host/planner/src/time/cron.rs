//! Schedules of five fields, read as Kubernetes reads those of a CronJob. Crates that were looked at read other things too
//! (`L`, `#`, seconds, 7 for Sunday), or take `*/2` for a day field that is not set.
//!
//! A schedule is on the clock of a wall: which moments that is in a time zone, the recurring times in `facts` say.

use jiff::civil::{Date, DateTime, Weekday};
use jiff::{SignedDuration, ToSpan as _};

/// A schedule, with the bits of each field that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// From 0, which is Sunday.
    weekdays: u64,
    /// Both day fields are set: a day that matches one of them is enough.
    either: bool,
}

/// A field: its name, its least and largest number, and names for numbers.
struct Field {
    name: &'static str,
    least: u64,
    most: u64,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    field("minute", 0, 59, &[]),
    field("hour", 0, 23, &[]),
    field("day of month", 1, 31, &[]),
    field(
        "month",
        1,
        12,
        &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    ),
    field(
        "day of week",
        0,
        6,
        &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    ),
];

const fn field(name: &'static str, least: u64, most: u64, names: &'static [&'static str]) -> Field {
    Field {
        name,
        least,
        most,
        names,
    }
}

const WORDS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// 29 February comes again after 8 years at the latest.
const YEARS: i16 = 9;

/// How to write one.
const FORM: &str = "write five fields, such as \"0 22 * * 1-5\" (minute, hour, day of month, month, day of week), or @daily";

impl Cron {
    /// # Errors
    /// It is no schedule, or one that never starts; says what is wrong, and how to write it.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = |what: String| format!("{text:?} is not a schedule: {what}");
        if text.contains("TZ=") {
            return Err(wrong("write the time zone into timeZone".to_owned()));
        }
        let word = WORDS.iter().find(|(word, _)| *word == text);
        if word.is_none() && text.starts_with('@') {
            let words = WORDS.map(|(word, _)| word).join(", ");
            return Err(wrong(format!("of the words there are {words}")));
        }
        let fields: Vec<&str> = word
            .map_or(text, |(_, fields)| fields)
            .split_whitespace()
            .collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(wrong(format!("it has {} fields; {FORM}", fields.len())));
        };
        let bits = |index: usize, text| FIELDS[index].read(text).map_err(wrong);
        let (days, is_any_day) = bits(2, days)?;
        let (weekdays, is_any_weekday) = bits(4, weekdays)?;
        let cron = Self {
            minutes: bits(0, minutes)?.0,
            hours: bits(1, hours)?.0,
            days,
            months: bits(3, months)?.0,
            weekdays,
            either: !is_any_day && !is_any_weekday,
        };
        // The year before a leap year is as good as any to begin in.
        match cron.next(Date::constant(2023, 1, 1).to_datetime(jiff::civil::Time::midnight())) {
            Some(_) => Ok(cron),
            None => Err(wrong(
                "it never starts, because no month that it names has such a day".to_owned(),
            )),
        }
    }

    /// The first start after this.
    pub fn next(&self, after: DateTime) -> Option<DateTime> {
        let from = after.checked_add(1.minute()).ok()?;
        let mut day = from.date();
        let last = day
            .checked_add(i32::from(YEARS).years())
            .unwrap_or(Date::MAX);
        let mut least = (from.hour(), from.minute());
        while day <= last {
            if !has(self.months, day.month()) {
                day = day.last_of_month();
            } else if self.has_day(day)
                && let Some((hour, minute)) = self.times().find(|time| *time >= least)
            {
                return Some(day.at(hour, minute, 0, 0));
            }
            (day, least) = (day.tomorrow().ok()?, (0, 0));
        }
        None
    }

    /// The last start that is not after `until`, and at most so long before it.
    pub fn last(&self, until: DateTime, within: SignedDuration) -> Option<DateTime> {
        let mut day = until.date();
        let first = until.checked_sub(within).unwrap_or(DateTime::MIN).date();
        let mut most = (until.hour(), until.minute());
        while day >= first {
            if has(self.months, day.month())
                && self.has_day(day)
                && let Some((hour, minute)) = self.times().rev().find(|time| *time <= most)
            {
                return Some(day.at(hour, minute, 0, 0));
            }
            (day, most) = (day.yesterday().ok()?, (23, 59));
        }
        None
    }

    fn has_day(&self, day: Date) -> bool {
        let weekday = day.weekday().since(Weekday::Sunday);
        let of_month = has(self.days, day.day());
        let of_week = has(self.weekdays, weekday);
        match self.either {
            true => of_month || of_week,
            false => of_month && of_week,
        }
    }

    /// Hour and minute of each start of a day, in order.
    fn times(&self) -> impl DoubleEndedIterator<Item = (i8, i8)> {
        let (hours, minutes) = (self.hours, self.minutes);
        let hours = (0..24).filter(move |hour| has(hours, *hour));
        hours.flat_map(move |hour| {
            let minutes = (0..60).filter(move |minute| has(minutes, *minute));
            minutes.map(move |minute| (hour, minute))
        })
    }
}

fn has(bits: u64, number: i8) -> bool {
    bits & (1 << number) != 0
}

impl Field {
    /// The bits of a list, and whether it says "any" (`*`).
    fn read(&self, list: &str) -> Result<(u64, bool), String> {
        let (mut bits, mut is_any) = (0, false);
        for part in list.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(self.number(step, part)?)),
                None => (part, None),
            };
            let (least, most, star) = match range.split_once('-') {
                Some((least, most)) => (self.number(least, part)?, self.number(most, part)?, false),
                None if range == "*" || range == "?" => (self.least, self.most, true),
                None => {
                    let least = self.number(range, part)?;
                    // `5/15` goes on to the end.
                    (least, step.map_or(least, |_| self.most), false)
                }
            };
            let step = step.unwrap_or(1);
            if least < self.least || most > self.most || least > most || step == 0 {
                return Err(format!(
                    "{part:?} is not in the field {}, which goes from {} to {}",
                    self.name, self.least, self.most
                ));
            }
            is_any |= star && step == 1;
            let mut number = least;
            while number <= most {
                bits |= 1 << number;
                number += step;
            }
        }
        Ok((bits, is_any))
    }

    fn number(&self, text: &str, part: &str) -> Result<u64, String> {
        let named = self.names.iter().zip(self.least..);
        let named = named.filter(|(name, _)| name.eq_ignore_ascii_case(text));
        if let Some((_, number)) = named.last() {
            return Ok(number);
        }
        let is_short = text.len() <= 3 && text.bytes().all(|letter| letter.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_short);
        number.ok_or_else(|| {
            format!(
                "{part:?} of the field {} has no number in {text:?}; {FORM}",
                self.name
            )
        })
    }
}

#[cfg(test)]
mod tests;
