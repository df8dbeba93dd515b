//! Ten years of slots in eight zones, against an oracle that knows nothing of spans or offsets.
//!
//! The oracle walks every minute of the time line and looks at the wall clock. What it has not shown
//! before is new; what it jumps over is swallowed by a gap; what it shows again is an overlap. From
//! that alone, and days told by hand, it says when a schedule must fire. The years 2008 to 2018 have
//! Apia's skipped day, the half hour of Lord Howe, midnights without a midnight in São Paulo.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

use jiff::civil::{DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use tidemill_core::schedule::slot::Slots;
use tidemill_core::schedule::{Definition, Rule};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// An expression, whether it follows the clock, and what it says of a minute, told by hand.
struct Case {
    cron: &'static str,
    follows_clock: bool,
    matches: fn(DateTime) -> bool,
}

const CASES: [Case; 8] = [
    Case {
        cron: "30 2 * * *",
        follows_clock: false,
        matches: |at| at.hour() == 2 && at.minute() == 30,
    },
    Case { cron: "*/20 * * * *", follows_clock: true, matches: |at| at.minute() % 20 == 0 },
    Case {
        cron: "0 */3 * * *",
        follows_clock: true,
        matches: |at| at.minute() == 0 && at.hour() % 3 == 0,
    },
    Case {
        cron: "*/10 0-3 * * *",
        follows_clock: false,
        matches: |at| at.minute() % 10 == 0 && at.hour() <= 3,
    },
    Case {
        cron: "0 0 L * *",
        follows_clock: false,
        matches: |at| {
            at.hour() == 0 && at.minute() == 0 && at.date().tomorrow().unwrap().day() == 1
        },
    },
    Case {
        cron: "15 1,13 * * SUN#2",
        follows_clock: false,
        matches: |at| {
            at.minute() == 15
                && (at.hour() == 1 || at.hour() == 13)
                && (8..=14).contains(&at.day())
                && at.date().weekday() == Weekday::Sunday
        },
    },
    Case {
        cron: "0 12 15W * *",
        follows_clock: false,
        matches: |at| {
            if (at.hour(), at.minute()) != (12, 0) {
                return false;
            }
            let middle = at.date().first_of_month() + SignedDuration::from_hours(14 * 24);
            let shift = match middle.weekday() {
                Weekday::Saturday => -1,
                Weekday::Sunday => 1,
                _ => 0,
            };
            at.day() == 15 + shift
        },
    },
    Case {
        cron: "59 23 29 2 *",
        follows_clock: false,
        matches: |at| (at.month(), at.day(), at.hour(), at.minute()) == (2, 29, 23, 59),
    },
];

/// The slots of every case after `start` and up to `end`, found by walking each minute once.
fn oracle(zone: &TimeZone, start: Timestamp, end: Timestamp) -> Vec<Vec<Timestamp>> {
    let mut slots = vec![Vec::new(); CASES.len()];
    let (mut at, mut shown) = (start, zone.to_datetime(start));
    let mut new = Vec::new();
    while at < end {
        at += MINUTE;
        let wall = zone.to_datetime(at);
        // What the wall clock shows, or jumps over, for the first time.
        new.clear();
        while shown < wall {
            shown += MINUTE;
            new.push(shown);
        }
        for (case, slots) in CASES.iter().zip(&mut slots) {
            let fires = if case.follows_clock {
                (case.matches)(wall)
            } else {
                new.iter().any(|wall| (case.matches)(*wall))
            };
            if fires {
                slots.push(at);
            }
        }
    }
    slots
}

fn check(zone_name: &str) {
    let zone = TimeZone::get(zone_name).unwrap();
    let (start, end): (Timestamp, Timestamp) =
        ("2007-12-31T23:59:00Z".parse().unwrap(), "2018-01-01T00:00:00Z".parse().unwrap());
    for (case, expected) in CASES.iter().zip(oracle(&zone, start, end)) {
        let rule = Rule::Cron(case.cron.to_owned());
        let definition = Definition { zone: zone_name.to_owned(), ..Definition::new("s", rule) };
        let slots = Slots::of(&definition).unwrap();
        let found = slots.between(start, end, usize::MAX);
        let first = found.iter().zip(&expected).find(|(ours, theirs)| ours != theirs);
        assert_eq!(first, None, "{zone_name} {}", case.cron);
        assert_eq!(found.len(), expected.len(), "{zone_name} {}", case.cron);
        // Asked between two slots, as a process that starts anew asks, the answer is the same.
        for pair in expected.windows(2).step_by(expected.len() / 200 + 1) {
            let between = pair[0] + (pair[1].duration_since(pair[0])) / 2;
            assert_eq!(slots.next(between), Some(pair[1]), "{zone_name} {} {between}", case.cron);
        }
    }
}

macro_rules! zones {
    ($($test:ident: $zone:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            check($zone);
        })*
    };
}

zones!(
    lord_howe_shifts_by_half_an_hour: "Australia/Lord_Howe",
    apia_skips_a_day: "Pacific/Apia",
    dublin_has_a_negative_summer: "Europe/Dublin",
    kathmandu_is_off_by_a_quarter: "Asia/Kathmandu",
    new_york_changes_at_two: "America/New_York",
    berlin_changes_at_two: "Europe/Berlin",
    sao_paulo_changes_at_midnight: "America/Sao_Paulo",
    utc_never_changes: "UTC",
);
