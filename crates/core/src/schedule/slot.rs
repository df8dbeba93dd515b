//! The slots of a rule of time: the next one after a moment, whatever the clocks do in between.
//!
//! Time is cut into spans in which a zone keeps one distance from UTC. Within a span the wall clock
//! and the time line run alike, so a cron expression is looked up there, span by span. At the seams:
//!
//! - **Gap** (clocks are put forward). A time of day that is named (`30 2 * * *`) and does not exist
//!   fires at the first moment after the gap, once, however many named times the gap has swallowed.
//!   An expression that names no hours (`*/15 * * * *`) follows the clock: what does not exist does
//!   not fire.
//! - **Overlap** (clocks are put back). A named time fires the first time only. An expression that
//!   follows the clock fires in both passes.
//!
//! Everything here is a function of its arguments and the time-zone database.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::error::{Error, Result};
use crate::schedule::cron::{Cron, YEARS_MAX};
use crate::schedule::{Definition, Rule};

const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// Times are kept in whole microseconds: nothing lies between a moment and the one this much before.
const MOMENT: SignedDuration = SignedDuration::from_micros(1);

/// So long an expression is looked for.
const SILENT_MAX: SignedDuration = SignedDuration::from_hours(YEARS_MAX as i64 * 366 * 24);

/// A rule of time that was understood: it knows its slots.
#[derive(Debug, Clone)]
pub struct Slots {
    when: When,
    zone: TimeZone,
    start_at: Option<Timestamp>,
    end_at: Option<Timestamp>,
    except: Vec<Date>,
}

#[derive(Debug, Clone)]
enum When {
    Cron(Box<Cron>),
    Every(Duration),
    Once(Timestamp),
}

impl Slots {
    /// Reads the rule of a definition.
    pub fn of(definition: &Definition) -> Result<Self> {
        let when = match &definition.rule {
            Rule::Cron(text) => When::Cron(Box::new(Cron::parse(text)?)),
            Rule::EveryMs(every_ms) => When::Every(Duration::from_millis(*every_ms)),
            Rule::Once(at) => When::Once(*at),
        };
        let mut except = definition.except.clone();
        except.sort_unstable();
        Ok(Self {
            when,
            zone: zone(&definition.zone)?,
            start_at: definition.start_at,
            end_at: definition.end_at,
            except,
        })
    }

    /// The first slot after `after`, not before the start and before the end.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let mut after = match self.start_at {
            // The start itself may be a slot.
            Some(start) if start > after => start.checked_sub(MOMENT).ok()?,
            _ => after,
        };
        // Each turn leaves an excepted date behind, and there are so many of them.
        loop {
            let slot = self.next_of_rule(after)?;
            if self.end_at.is_some_and(|end| slot >= end) {
                return None;
            }
            let Some(date) = self.excepted(slot) else { return Some(slot) };
            // Where clocks are put back over midnight, a date goes on after it has ended.
            after = self.end_of(date, slot)?.checked_sub(MOMENT).ok()?.max(slot);
        }
    }

    /// Whether there would be slots after `after`, were their dates not excepted.
    pub fn is_all_excepted(&self, after: Timestamp) -> bool {
        let all = Self { except: Vec::new(), ..self.clone() };
        self.next(after).is_none() && all.next(after).is_some()
    }

    /// The next `n` slots after `after`.
    pub fn upcoming(&self, after: Timestamp, n: usize) -> Vec<Timestamp> {
        let first = self.next(after);
        std::iter::successors(first, |slot| self.next(*slot)).take(n).collect()
    }

    /// The slots after `after` and up to `until`, at most `max`.
    pub fn between(&self, after: Timestamp, until: Timestamp, max: usize) -> Vec<Timestamp> {
        let first = self.next(after);
        let slots = std::iter::successors(first, |slot| self.next(*slot));
        slots.take_while(|slot| *slot <= until).take(max).collect()
    }

    /// The zone of the wall clock.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The date of a slot, if it is excepted.
    fn excepted(&self, slot: Timestamp) -> Option<Date> {
        if self.except.is_empty() {
            return None;
        }
        let date = self.zone.to_datetime(slot).date();
        self.except.binary_search(&date).is_ok().then_some(date)
    }

    /// The first moment of the date after this one: midnight, or when the gap ends that swallowed it.
    fn end_of(&self, date: Date, slot: Timestamp) -> Option<Timestamp> {
        let midnight = date.tomorrow().ok()?.to_datetime(Time::midnight());
        let midnight = self.zone.to_timestamp(midnight).ok()?;
        let seams = self.zone.following(slot).map(|transition| transition.timestamp());
        let mut seams = seams.take_while(|seam| *seam < midnight);
        Some(seams.find(|seam| self.zone.to_datetime(*seam).date() > date).unwrap_or(midnight))
    }

    fn next_of_rule(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.when {
            When::Cron(cron) => next_of_cron(cron, &self.zone, after),
            When::Every(every) => next_of_every(*every, self.start_at, after),
            When::Once(at) => (*at > after).then_some(*at),
        }
    }
}

/// The zone of this IANA name.
pub(crate) fn zone(name: &str) -> Result<TimeZone> {
    TimeZone::get(name).map_err(|_| Error::ScheduleZoneUnknown { zone: name.to_owned() })
}

/// Counted from the start, or from 1970: the same in every process, and it does not drift.
fn next_of_every(
    every: Duration,
    anchor: Option<Timestamp>,
    after: Timestamp,
) -> Option<Timestamp> {
    let anchor_us = anchor.map_or(0, Timestamp::as_microsecond);
    let every_us = i64::try_from(every.as_micros()).ok().filter(|every| *every > 0)?;
    // In whole microseconds: whatever is left of one is before the next.
    let passed = after.as_microsecond().checked_sub(anchor_us)?.div_euclid(every_us);
    let next_us = passed.checked_add(1)?.checked_mul(every_us)?.checked_add(anchor_us)?;
    Timestamp::from_microsecond(next_us).ok()
}

fn next_of_cron(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut from = Timestamp::from_second(after.as_second()).ok()?;
    while from <= after {
        from = from.checked_add(SECOND).ok()?;
    }
    for (from, span) in spans(zone, from) {
        if span.skips_named(cron, from) {
            return Some(from);
        }
        let mut earliest = span.offset.to_datetime(from);
        if !cron.follows_clock() {
            earliest = earliest.max(span.first_new());
        }
        let until = span.end.map(|end| span.offset.to_datetime(end));
        if let Some(found) = cron.find(earliest, until) {
            return span.offset.to_timestamp(found).ok();
        }
    }
    None
}

/// The stretches of a zone's time from this moment on, each with its beginning; no further than an expression is silent
/// that ever fires. A zone that puts its clocks forward and back does so for ever.
fn spans(zone: &TimeZone, from: Timestamp) -> impl Iterator<Item = (Timestamp, Span)> {
    let last = from.checked_add(SILENT_MAX).unwrap_or(Timestamp::MAX);
    let span = |at: Timestamp| (at, Span::at(zone, at));
    std::iter::successors(Some(span(from)), move |(_, before)| {
        before.end.filter(|end| *end <= last).map(span)
    })
}

/// A stretch of time in which a zone keeps its distance from UTC.
struct Span {
    offset: Offset,
    /// When it began, and the distance before; nothing when it always was so.
    start: Option<(Timestamp, Offset)>,
    /// When it ends.
    end: Option<Timestamp>,
}

impl Span {
    fn at(zone: &TimeZone, moment: Timestamp) -> Self {
        let offset = zone.to_offset(moment);
        // Some transitions change only a name: the distance before tells.
        let before = |at: Timestamp| at.checked_sub(SECOND).ok().map(|at| zone.to_offset(at));
        let upto = moment.checked_add(SECOND).unwrap_or(Timestamp::MAX);
        let changes = |at: Timestamp| before(at).filter(|before| *before != zone.to_offset(at));
        let start = zone
            .preceding(upto)
            .map(|transition| transition.timestamp())
            .find_map(|at| changes(at).map(|before| (at, before)));
        let mut later = zone.following(moment).map(|transition| transition.timestamp());
        let end = later.find(|at| zone.to_offset(*at) != offset);
        Self { offset, start, end }
    }

    /// Whether it begins at `moment` with a gap that has swallowed a time of day that is named.
    fn skips_named(&self, cron: &Cron, moment: Timestamp) -> bool {
        let Some((start, before)) = self.start else { return false };
        if cron.follows_clock() || start != moment || before >= self.offset {
            return false;
        }
        let (gap, until) = (before.to_datetime(start), self.offset.to_datetime(start));
        cron.find(gap, Some(until)).is_some()
    }

    /// From here on its wall clock shows what was not shown before.
    fn first_new(&self) -> DateTime {
        self.start.map_or(DateTime::MIN, |(start, before)| before.to_datetime(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(definition: &Definition, after: &str, n: usize) -> Vec<String> {
        let slots = Slots::of(definition).unwrap();
        let upcoming = slots.upcoming(after.parse().unwrap(), n);
        upcoming
            .iter()
            .map(|at| at.to_zoned(slots.zone().clone()).strftime("%d %H:%M %:z").to_string())
            .collect()
    }

    fn cron(cron: &str, zone: &str) -> Definition {
        Definition { zone: zone.into(), ..Definition::new("s", Rule::Cron(cron.into())) }
    }

    #[test]
    fn a_named_time_in_a_gap_fires_once_right_after_it() {
        let berlin = |text| slots(&cron(text, "Europe/Berlin"), "2026-03-28T12:00:00Z", 3);
        assert_eq!(berlin("30 2 * * *"), ["29 03:00 +02:00", "30 02:30 +02:00", "31 02:30 +02:00"]);
        assert_eq!(berlin("*/20 2 * * *")[..2], ["29 03:00 +02:00", "30 02:00 +02:00"]);
        assert_eq!(berlin("0 2,3 * * *")[..2], ["29 03:00 +02:00", "30 02:00 +02:00"], "not twice");
    }

    #[test]
    fn what_follows_the_clock_passes_over_a_gap() {
        let berlin = slots(&cron("30 * * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z", 3);
        assert_eq!(berlin, ["29 01:30 +01:00", "29 03:30 +02:00", "29 04:30 +02:00"]);
    }

    #[test]
    fn a_named_time_in_an_overlap_fires_in_the_first_pass() {
        let berlin = slots(&cron("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z", 2);
        assert_eq!(berlin, ["25 02:30 +02:00", "26 02:30 +01:00"]);
        let between = slots(&cron("30 2 * * *", "Europe/Berlin"), "2026-10-25T00:45:00Z", 1);
        assert_eq!(between, ["26 02:30 +01:00"], "also when one asks between the passes");
    }

    #[test]
    fn what_follows_the_clock_fires_in_both_passes() {
        let berlin = slots(&cron("30 * * * *", "Europe/Berlin"), "2026-10-25T00:00:00Z", 3);
        assert_eq!(berlin, ["25 02:30 +02:00", "25 02:30 +01:00", "25 03:30 +01:00"]);
    }

    #[test]
    fn a_whole_day_may_be_skipped() {
        let apia = slots(&cron("0 10 * * *", "Pacific/Apia"), "2011-12-29T12:00:00Z", 3);
        assert_eq!(apia, ["29 10:00 -10:00", "31 00:00 +14:00", "31 10:00 +14:00"]);
    }

    #[test]
    fn intervals_keep_their_beat() {
        let every = Definition::new("s", Rule::EveryMs(90_000));
        assert_eq!(
            slots(&every, "1970-01-01T00:00:00Z", 2),
            ["01 00:01 +00:00", "01 00:03 +00:00"]
        );
        let start_at = Some("2026-01-01T00:00:10Z".parse().unwrap());
        let anchored = Slots::of(&Definition { start_at, ..every }).unwrap();
        let first = anchored.next("2025-01-01T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(Some(first), start_at, "the start is a slot");
        assert_eq!(anchored.next(first).unwrap().duration_since(first).as_secs(), 90);
        let before = first - SignedDuration::from_micros(1);
        assert_eq!(anchored.next(before), start_at);
    }

    #[test]
    fn start_end_and_exceptions_bound_the_slots() {
        let daily = cron("0 12 * * *", "UTC");
        let bounded = Definition {
            start_at: Some("2026-01-02T12:00:00Z".parse().unwrap()),
            end_at: Some("2026-01-06T12:00:00Z".parse().unwrap()),
            except: vec!["2026-01-04".parse().unwrap(), "2026-01-03".parse().unwrap()],
            ..daily
        };
        let all = slots(&bounded, "2020-01-01T00:00:00Z", 10);
        assert_eq!(all, ["02 12:00 +00:00", "05 12:00 +00:00"], "the end itself is outside");
        let slots = Slots::of(&bounded).unwrap();
        for (after, expected) in [("01-01", false), ("01-05", false), ("01-06", false)] {
            let after = format!("2026-{after}T12:00:00Z").parse().unwrap();
            assert_eq!(slots.is_all_excepted(after), expected, "{after}");
        }
        let except = vec!["2026-01-05".parse().unwrap()];
        let slots = Slots::of(&Definition { except, ..bounded }).unwrap();
        assert!(slots.is_all_excepted("2026-01-04T12:00:00Z".parse().unwrap()));
    }

    #[test]
    fn excepted_dates_are_left_at_once_however_many_slots_they_have() {
        let days = |first: &str, n: usize| -> Vec<Date> {
            first.parse::<Date>().unwrap().series(jiff::Span::new().days(1)).take(n).collect()
        };
        let zone = "Etc/GMT+2";
        for (rule, first) in [
            (Rule::EveryMs(1000), "15 00:00:00 -02:00"),
            (Rule::Cron("* * * * * *".into()), "15 00:00:00 -02:00"),
            (Rule::Cron("30 * * * * *".into()), "15 00:00:30 -02:00"),
            (Rule::EveryMs(7 * 60_000), "15 00:06:00 -02:00"),
        ] {
            let definition = Definition {
                zone: zone.into(),
                except: days("2026-01-01", 14),
                ..Definition::new("s", rule)
            };
            let next = |definition: &Definition, after: &str| {
                let slots = Slots::of(definition).unwrap();
                let next = slots.next(after.parse().unwrap()).unwrap();
                next.to_zoned(slots.zone().clone()).strftime("%d %H:%M:%S %:z").to_string()
            };
            assert_eq!(next(&definition, "2026-01-01T02:00:00Z"), first, "{:?}", definition.rule);
            assert_eq!(next(&definition, "2026-01-07T13:14:15Z"), first, "{:?}", definition.rule);
            let start_at = Some("2026-01-15T02:00:00Z".parse().unwrap());
            let starts = Definition { start_at, except: days("2026-01-15", 1000), ..definition };
            assert!(next(&starts, "2026-01-01T00:00:00Z").starts_with("11 00:0"));
            assert!(starts.check(&crate::Limits::default(), Timestamp::UNIX_EPOCH).is_ok());
        }
    }

    #[test]
    fn the_date_after_an_excepted_one_begins_where_its_zone_says() {
        for (cron_text, zone, date, after, expected) in [
            // Midnight does not exist: the day begins at one, at half past, or is another.
            (
                "* * * * *",
                "America/Sao_Paulo",
                "2018-11-03",
                "2018-11-03T12:00:00Z",
                "04 01:00 -02:00",
            ),
            (
                "* * * * *",
                "America/Toronto",
                "1919-03-30",
                "1919-03-30T12:00:00Z",
                "31 00:30 -04:00",
            ),
            ("0 10 * * *", "Pacific/Apia", "2011-12-29", "2011-12-29T12:00:00Z", "31 00:00 +14:00"),
            // It exists twice: what comes between is of the date after, then the date goes on.
            (
                "* * * * *",
                "America/St_Johns",
                "2010-11-06",
                "2010-11-06T12:00:00Z",
                "07 00:00 -02:30",
            ),
            (
                "* * * * *",
                "America/St_Johns",
                "2010-11-06",
                "2010-11-07T02:30:30Z",
                "07 00:00 -03:30",
            ),
            // The hour before midnight exists twice, midnight once.
            (
                "* * * * *",
                "America/Sao_Paulo",
                "2018-02-17",
                "2018-02-17T12:00:00Z",
                "18 00:00 -03:00",
            ),
        ] {
            let except = vec![date.parse().unwrap()];
            let found = slots(&Definition { except, ..cron(cron_text, zone) }, after, 1);
            assert_eq!(found, [expected], "{zone} after {date}");
        }
    }

    #[test]
    fn once_is_once() {
        let at = "2026-05-01T08:00:00Z".parse().unwrap();
        let once = Slots::of(&Definition::new("s", Rule::Once(at))).unwrap();
        assert_eq!(once.upcoming(Timestamp::UNIX_EPOCH, 5), [at]);
        assert_eq!(once.next(at), None);
    }

    #[test]
    fn zones_are_known_by_their_iana_names() {
        assert!(zone("Europe/Berlin").is_ok());
        for name in ["Mars/Olympus", "", "CET6CEST,M3.5.0", "Berlin"] {
            assert_eq!(zone(name).unwrap_err().code(), "schedule_zone_unknown", "{name}");
        }
    }

    #[test]
    fn what_never_comes_is_looked_for_no_further_where_clocks_are_put_forward() {
        let from = "2026-01-01T00:00:00Z".parse().unwrap();
        for (zone, changes_a_year) in [("Europe/Berlin", 2), ("America/New_York", 2), ("UTC", 0)] {
            let found = spans(&super::zone(zone).unwrap(), from).count();
            assert_eq!(found / 50, changes_a_year, "{zone}: {found}");
            assert!(slots(&cron("0 0 30 2 *", zone), "2026-01-01T00:00:00Z", 1).is_empty());
            let rare = slots(&cron("0 0 29 2 +SUN", zone), "2026-01-01T00:00:00Z", 2);
            assert_eq!(rare.len(), 2, "{zone}: 28 years lie between them");
        }
    }
}
