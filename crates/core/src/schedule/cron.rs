//! A cron expression, and the times of a calendar that it names.
//!
//! The expression is read by `croner`, which also knows its days (`L`, `W`, `#`, and days of month or
//! week). What happens where a clock is put forward or back is not decided here but in `slot`: this
//! file knows dates and times of day, and no zone.
//!
//! It refuses years, more than six fields, and the one combination that `croner` misreads. What is wrong with an
//! expression is said by `wrong`, in our words.

mod wrong;

use croner::parser::{CronParser, Seconds, Year};
use croner::{CronPattern, Weekday};
use jiff::civil::{Date, DateTime, Time};

use crate::error::{Error, Result};

/// The longest expression.
const CRON_BYTES_MAX: usize = 200;
/// No expression that ever fires is silent for longer: a 29 February on a given weekday can take 40.
pub(super) const YEARS_MAX: i16 = 50;

/// A cron expression that was understood.
#[derive(Debug, Clone)]
pub(crate) struct Cron {
    pattern: CronPattern,
    hours: Vec<i8>,
    minutes: Vec<i8>,
    seconds: Vec<i8>,
    follows_clock: bool,
}

impl Cron {
    /// Reads five fields, six with seconds first, or a word like `@daily`.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = |reason: String| Error::ScheduleCronInvalid { cron: text.to_owned(), reason };
        if text.len() > CRON_BYTES_MAX {
            let reason = format!("it has {} bytes, the limit is {CRON_BYTES_MAX}", text.len());
            return Err(refused(reason));
        }
        let parser =
            CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(text).map_err(|_| refused(wrong::reason(text)))?;
        let pattern = cron.pattern;
        let fields: Vec<&str> = pattern.as_str().split_whitespace().collect();
        let [.., hours, days, _, _] = fields.as_slice() else {
            return Err(refused(wrong::reason(text)));
        };
        if days.contains('W') && days.contains('L') && *days != "LW" {
            let reason = "its day of month has `L` and `W`; write `LW`, or make two schedules";
            return Err(refused(reason.to_owned()));
        }
        let follows_clock = hours.starts_with('*') || pattern.hours.values().len() == 24;
        let values = |component: &croner::CronComponent| {
            component.values().into_iter().map(|value| value as i8).collect()
        };
        Ok(Self {
            hours: values(&pattern.hours),
            minutes: values(&pattern.minutes),
            seconds: values(&pattern.seconds),
            follows_clock,
            pattern,
        })
    }

    /// Whether it names no hours (`*` or `*/2`): then it follows the clock as it ticks. Else it names
    /// times of day, and each of them comes once on each of its days.
    pub fn follows_clock(&self) -> bool {
        self.follows_clock
    }

    /// The first time it names at or after `from` and before `until`.
    pub fn find(&self, from: DateTime, until: Option<DateTime>) -> Option<DateTime> {
        let last = from.date().year().saturating_add(YEARS_MAX);
        let (mut date, mut time) = (from.date(), from.time());
        while date.year() <= last && until.is_none_or(|until| date <= until.date()) {
            if !self.pattern.month_match(date.month() as u32).ok()? {
                date = date.last_of_month().tomorrow().ok()?;
                time = Time::midnight();
                continue;
            }
            if self.has_day(date)
                && let Some(time) = self.time_from(time)
            {
                let found = date.to_datetime(time);
                return until.is_none_or(|until| found < until).then_some(found);
            }
            date = date.tomorrow().ok()?;
            time = Time::midnight();
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        let weekday = Weekday::from_days_from_sunday(weekday as u32);
        let (year, month, day) = (date.year(), date.month(), date.day());
        let has = self.pattern.day_match(i32::from(year), month as u32, day as u32, weekday);
        has.unwrap_or(false)
    }

    /// The first time of day it names at or after this one.
    fn time_from(&self, from: Time) -> Option<Time> {
        let first = |values: &[i8], from: i8| values.iter().copied().find(|value| *value >= from);
        // A part of a second means the next whole one, which may be in the next minute or hour.
        let from_second = from.second() + i8::from(from.subsec_nanosecond() > 0);
        for hour in self.hours.iter().copied().filter(|hour| *hour >= from.hour()) {
            let is_first_hour = hour == from.hour();
            let from_minute = if is_first_hour { from.minute() } else { 0 };
            for minute in self.minutes.iter().copied().filter(|minute| *minute >= from_minute) {
                let is_first = is_first_hour && minute == from.minute();
                let second = first(&self.seconds, if is_first { from_second } else { 0 });
                if let Some(second) = second {
                    return Time::new(hour, minute, second, 0).ok();
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(cron: &str, from: &str, n: usize) -> Vec<String> {
        let cron = Cron::parse(cron).unwrap();
        let mut from: DateTime = from.parse().unwrap();
        let mut found = Vec::new();
        while found.len() < n
            && let Some(time) = cron.find(from, None)
        {
            found.push(time.strftime("%m-%d %H:%M:%S").to_string());
            from = time + jiff::SignedDuration::from_secs(1);
        }
        found
    }

    #[test]
    fn expressions_name_their_times() {
        for (cron, expected) in [
            ("30 4 * * *", ["01-01 04:30:00", "01-02 04:30:00"]),
            ("15 30 4 * * *", ["01-01 04:30:15", "01-02 04:30:15"]),
            ("@monthly", ["01-01 00:00:00", "02-01 00:00:00"]),
            ("0 0 L * *", ["01-31 00:00:00", "02-28 00:00:00"]),
            ("0 9 LW * *", ["01-30 09:00:00", "02-27 09:00:00"]),
            ("0 9 15W * *", ["01-15 09:00:00", "02-16 09:00:00"]),
            ("0 9 * * MON#2", ["01-12 09:00:00", "02-09 09:00:00"]),
            ("0 9 * * 5L", ["01-30 09:00:00", "02-27 09:00:00"]),
            ("0 0 13 * FRI", ["01-02 00:00:00", "01-09 00:00:00"]),
            ("0 0 13 * +FRI", ["02-13 00:00:00", "03-13 00:00:00"]),
            ("0 0 29 2 *", ["02-29 00:00:00", "02-29 00:00:00"]),
            ("59 59 23 31 12 *", ["12-31 23:59:59", "12-31 23:59:59"]),
        ] {
            assert_eq!(times(cron, "2026-01-01T00:00:00", 2), expected, "{cron}");
        }
    }

    #[test]
    fn a_part_of_a_second_is_rounded_up() {
        assert_eq!(times("* * * * * *", "2026-01-01T23:59:59.5", 1), ["01-02 00:00:00"]);
        assert_eq!(times("0 * * * *", "2026-01-01T10:00:00.1", 1), ["01-01 11:00:00"]);
    }

    #[test]
    fn what_never_comes_is_not_found() {
        for cron in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 , * * *"] {
            assert!(times(cron, "2026-01-01T00:00:00", 1).is_empty(), "{cron}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for cron in [
            "",
            "* * * *",
            "* * * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "a * * * *",
            "*/0 * * * *",
            "1--100000000 * * * *",
            "* * 15W,L * *",
            "5-1 * * * *",
            "* * * * MON#6",
            "@never",
        ] {
            let code = Cron::parse(cron).map(|_| ()).unwrap_err().code();
            assert_eq!(code, "schedule_cron_invalid", "{cron}");
        }
        assert!(Cron::parse(&"1,".repeat(500)).is_err());
    }

    #[test]
    fn hours_that_are_named_are_told_from_every_hour() {
        for (cron, follows) in [
            ("*/5 * * * *", true),
            ("0 */2 * * *", true),
            ("0 0-23 * * *", true),
            ("@hourly", true),
            ("0 3 * * *", false),
            ("*/5 3 * * *", false),
            ("0 1,13 * * *", false),
            ("@daily", false),
        ] {
            assert_eq!(Cron::parse(cron).unwrap().follows_clock(), follows, "{cron}");
        }
    }
}
