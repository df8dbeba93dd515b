//! Runs are led along their journals, and never astray.

use super::*;
use crate::job::state::State;
use crate::workflow::entry::ChildEnd;
use crate::workflow::{ASIDE_BYTES_MIN, JOINED_BYTES_MAX};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn step() -> Ask {
    Ask::Step { hash: None, once: false, announced: false, undo: None }
}

fn ok(text: &str) -> Ending {
    Ending::Ok(Payload::trusted(text.to_owned()))
}

fn ended(key: &str) -> Entry {
    Entry::Ended { key: key.into(), hash: None, tries: 1, took_ms: 0, ending: ok("1") }
}

fn replay(entries: Vec<Entry>) -> Replay {
    Replay::new((0..).zip(entries))
}

fn go(replay: &mut Replay, key: &str) {
    assert_eq!(replay.rest(NOW), Rest::Go(vec![key.to_owned()]));
    assert_eq!(replay.answer(key), Some(Answer::Go { tries: 0 }));
}

fn words(writes: &Writes) -> Vec<(u32, &str, &str)> {
    writes.entries.iter().map(|(n, entry)| (*n, entry.word(), entry.key())).collect()
}

#[test]
fn a_step_begins_when_what_came_before_is_written() {
    let mut replay = Replay::default();
    assert_eq!(replay.ask("a", step()), Ok(None));
    go(&mut replay, "a");
    replay.ended("a", None, 1, 5, ok("1"));
    assert_eq!(replay.ask("b", step()), Ok(None));
    assert_eq!(replay.rest(NOW), Rest::Flush);
    assert_eq!(words(&replay.take()), [(0, "ended", "a")]);
    replay.flies();
    assert_eq!(replay.rest(NOW), Rest::Busy { until: None, mail: false });
    replay.written();
    go(&mut replay, "b");
}

fn once() -> Ask {
    Ask::Step { hash: None, once: true, announced: false, undo: None }
}

#[test]
fn a_step_that_has_not_begun_when_its_attempt_ends_is_not_said_to_have() {
    let mut replay = Replay::default();
    replay.ask("a", once()).unwrap();
    replay.let_go(NOW);
    assert!(replay.take().is_empty());
}

#[test]
fn a_step_that_was_said_to_begin_and_did_not_begins_in_the_next_attempt() {
    // It may still be on its way, have come there, or been answered that it may begin.
    for (lands, goes) in [(false, false), (true, false), (true, true)] {
        let mut told = Replay::default();
        told.ask("a", once()).unwrap();
        assert_eq!(told.rest(NOW), Rest::Flush);
        let mut journal = told.take().entries;
        told.flies();
        if lands {
            told.written();
        }
        if goes {
            assert_eq!(told.rest(NOW), Rest::Go(vec!["a".to_owned()]));
        }
        told.let_go(NOW);
        journal.extend(told.take().entries);
        let mut next = Replay::new(journal);
        next.ask("a", once()).unwrap();
        assert_eq!(next.rest(NOW), Rest::Flush, "it says anew that it begins");
        next.take();
        next.written();
        go(&mut next, "a");
        next.let_go(NOW);
        assert!(next.take().is_empty(), "it has begun");
    }
}

#[test]
fn a_step_that_can_be_undone_is_written_before_it_begins() {
    let mut replay = Replay::default();
    replay.ask("a", Ask::Step { hash: None, once: true, announced: false, undo: None }).unwrap();
    assert_eq!(replay.rest(NOW), Rest::Flush);
    assert_eq!(words(&replay.take()), [(0, "began", "a")]);
    replay.written();
    go(&mut replay, "a");
}

#[test]
fn what_ended_is_told_in_its_order_one_at_a_time() {
    let mut replay = replay(vec![ended("b"), ended("a")]);
    for key in ["a", "b"] {
        replay.ask(key, step()).unwrap();
    }
    assert_eq!(replay.rest(NOW), Rest::Deliver("b".into()));
    assert_eq!((replay.answer("a"), replay.answer("b")), (None, Some(Answer::Ended(ok("1")))));
    assert_eq!(replay.rest(NOW), Rest::Deliver("a".into()));
    assert!(replay.is_live() && replay.take().is_empty());
}

#[test]
fn what_began_once_and_was_not_heard_of_again_has_failed() {
    let began = Began { key: "a".into(), hash: None, once: true, undo: None };
    let mut replay = replay(vec![Entry::Began(began)]);
    replay.ask("a", Ask::Step { hash: None, once: true, announced: false, undo: None }).unwrap();
    assert_eq!(replay.rest(NOW), Rest::Deliver("a".into()));
    let answer = replay.answer("a");
    assert!(matches!(answer, Some(Answer::Ended(Ending::Err { .. }))), "{answer:?}");
}

#[test]
fn each_try_of_what_runs_at_most_once_is_written_before_it_begins() {
    let once = || Ask::Step { hash: None, once: true, announced: false, undo: None };
    let later = Timestamp::from_second(9).unwrap();
    let mut first = Replay::default();
    first.ask("a", once()).unwrap();
    let mut journal = first.take().entries;
    first.written();
    go(&mut first, "a");
    first.failed("a", 1, "busy", later);
    journal.extend(first.take().entries);
    // Whether it is the same attempt or another one: it begins when that is written.
    let mut second = Replay::new(journal.clone());
    second.ask("a", once()).unwrap();
    assert!(matches!(second.rest(NOW), Rest::Wait(_)) && !second.has_news(), "it is put off");
    for replay in [&mut first, &mut second] {
        assert_eq!(replay.rest(later), Rest::Flush);
        let writes = replay.take();
        assert_eq!(words(&writes), [(2, "began", "a")]);
        replay.written();
        assert_eq!(replay.rest(later), Rest::Go(vec!["a".to_owned()]));
        assert_eq!(replay.answer("a"), Some(Answer::Go { tries: 1 }));
        let mut third = Replay::new(journal.iter().cloned().chain(writes.entries));
        third.ask("a", once()).unwrap();
        assert_eq!(third.rest(later), Rest::Deliver("a".into()));
        let answer = third.answer("a");
        assert!(matches!(answer, Some(Answer::Ended(Ending::Err { .. }))), "{answer:?}");
    }
}

#[test]
fn other_code_is_told_from_the_journal() {
    let hashed = |hash: &str| Ask::Step {
        hash: Some(hash.into()),
        once: false,
        announced: false,
        undo: None,
    };
    let with_hash = |key: &str| {
        let (key, hash) = (key.to_owned(), Some("x".to_owned()));
        Entry::Ended { key, hash, tries: 1, took_ms: 0, ending: ok("1") }
    };
    let mut other = replay(vec![ended("a")]);
    other.ask("b", step()).unwrap();
    assert!(matches!(other.rest(NOW), Rest::Diverged(_)));
    assert!(other.end().is_err());
    let diff = replay(vec![with_hash("a")]).ask("a", hashed("y")).unwrap_err();
    assert_eq!(
        diff.to_string(),
        r#"the journal has the step "a" with an input of hash x, but the code gives it one of hash y"#
    );
    assert!(replay(vec![with_hash("a")]).ask("a", hashed("x")).is_ok());
    assert!(replay(vec![ended("a")]).ask("a", Ask::Sleep { until: NOW }).is_err());
    let slept = Entry::Slept { key: "a".into(), until: NOW };
    assert!(replay(vec![slept]).end().is_err());
}

#[test]
fn code_that_leaves_out_what_has_ended_is_astray_until_it_comes_by_it() {
    let mut late = replay(vec![ended("a"), ended("b")]);
    late.ask("b", step()).unwrap();
    let Rest::Astray(diff) = late.rest(NOW) else { panic!("it is not found out") };
    assert!(diff.journal.contains(r#""a" next (entry 0)"#), "{diff}");
    assert_eq!(diff.code, r#"asks for "b""#);
    assert!(!late.is_told());
    late.ask("a", step()).unwrap();
    for key in ["a", "b"] {
        assert_eq!(late.rest(NOW), Rest::Deliver(key.into()));
        assert!(late.answer(key).is_some());
    }
    assert!(late.is_told() && late.end().is_ok());
}

#[test]
fn what_is_new_before_something_open_does_not_begin() {
    let asks = [
        step(),
        Ask::Sleep { until: NOW },
        Ask::Signal { name: "s".into() },
        Ask::Join { id: JobId::new() },
        Ask::Children { kind: "k".into(), ids: vec![JobId::new()], outlives: false },
    ];
    for ask in asks {
        let open = Entry::Slept { key: "nap".into(), until: NOW };
        let mut other = replay(vec![ended("a"), open]);
        other.ask("a", step()).unwrap();
        assert_eq!(other.rest(NOW), Rest::Deliver("a".into()));
        assert!(other.answer("a").is_some());
        other.ask("new", ask.clone()).unwrap();
        let Rest::Astray(diff) = other.rest(NOW) else { panic!("{ask:?} begins") };
        assert!(diff.journal.contains(r#"the sleep "nap" next (entry 1)"#), "{diff}");
        assert!(!other.is_told(), "it leaves no trace");
        // Beside it, in another branch, it is not astray.
        other.ask("nap", Ask::Sleep { until: NOW }).unwrap();
        assert!(!matches!(other.rest(NOW), Rest::Astray(_) | Rest::Diverged(_)), "{ask:?}");
        assert!(other.is_told());
    }
}

#[test]
fn code_that_seemed_to_differ_and_ends_before_the_next_rest_has_followed_its_journal() {
    let noted = Entry::Noted { key: "now".into(), value: Payload::trusted("1".to_owned()) };
    let mut late = replay(vec![noted]);
    late.ask("slow", step()).unwrap();
    assert!(matches!(late.rest(NOW), Rest::Astray(_)), "it has not come by what was noted");
    assert!(!late.is_told(), "it leaves no trace");
    let now = late.ask("now", Ask::Note { value: Payload::null() });
    assert_eq!(now, Ok(Some(Answer::Value(Payload::trusted("1".to_owned())))));
    late.leave("slow");
    assert!(late.end().is_ok() && late.is_told(), "its end is written");
}

#[test]
fn the_first_of_a_race_is_the_first_by_its_time() {
    let later = Timestamp::from_second(9).unwrap();
    let mut replay = Replay::default();
    replay.ask("nap", Ask::Sleep { until: later }).unwrap();
    replay.ask("approve", Ask::Signal { name: "approve".into() }).unwrap();
    let Rest::Wait(waits) = replay.rest(NOW) else { panic!("it should wait") };
    assert_eq!((waits.until, waits.mail_min), (Some(later), 1));
    assert_eq!(waits.what, ["sleep nap", "signal approve"]);
    let content =
        crate::workflow::Content::Signal { name: "approve".into(), payload: Payload::null() };
    replay.read([crate::workflow::Mail { number: 7, at: NOW, content }]);
    assert_eq!(replay.rest(later), Rest::Deliver("approve".into()));
    replay.leave("nap");
    let writes = replay.take();
    assert_eq!(words(&writes), [(0, "slept", "nap"), (1, "signalled", "approve")]);
    let mut again = Replay::new(writes.entries);
    again.ask("nap", Ask::Sleep { until: NOW }).unwrap();
    again.ask("approve", Ask::Signal { name: "approve".into() }).unwrap();
    assert_eq!(again.rest(later), Rest::Deliver("approve".into()));
}

#[test]
fn what_a_scope_ended_with_stands_for_what_was_in_it() {
    let mut replay = replay(vec![ended("s/a")]);
    replay.ask("s", Ask::Scope).unwrap();
    replay.ask("s/a", step()).unwrap();
    assert_eq!(replay.rest(NOW), Rest::Deliver("s/a".into()));
    replay.ask("s/b", step()).unwrap();
    go(&mut replay, "s/b");
    replay.ended("s/b", None, 1, 0, ok("2"));
    replay.ended("s", None, 1, 0, ok("3"));
    let writes = replay.take();
    assert_eq!((words(&writes), &writes.forget), (vec![(2, "ended", "s")], &vec![0]));
}

#[test]
fn a_run_that_passed_by_keeps_the_oldest_version() {
    let version = Ask::Version { min: 1, max: 2 };
    let value = |text: &str| Ok(Some(Answer::Value(Payload::trusted(text.into()))));
    let mut passed = replay(vec![Entry::Slept { key: "nap".into(), until: NOW }]);
    assert_eq!(passed.ask("fix", version.clone()), value("1"));
    let mut new = Replay::default();
    assert_eq!(new.ask("fix", version.clone()), value("2"));
    let mut again = Replay::new(new.take().entries);
    assert_eq!(again.ask("fix", version), value("2"));
    assert!(again.ask("fix", Ask::Version { min: 3, max: 4 }).is_err());
}

#[test]
fn mail_of_a_clock_that_is_ahead_has_come_all_the_same() {
    let ahead = Timestamp::from_second(9).unwrap();
    let mut replay = Replay::default();
    replay.ask("go", Ask::Signal { name: "go".into() }).unwrap();
    let content = crate::workflow::Content::Signal { name: "go".into(), payload: Payload::null() };
    replay.read([crate::workflow::Mail { number: 1, at: ahead, content }]);
    assert_eq!(replay.rest(NOW), Rest::Deliver("go".into()));
}

#[test]
fn what_stands_beside_an_entry_is_told_once_it_was_read() {
    let ending = Ending::Ok(Payload::trusted(format!("\"{}\"", "x".repeat(ASIDE_BYTES_MIN))));
    let mut entry = Entry::Ended { key: "a".into(), hash: None, tries: 1, took_ms: 0, ending };
    let value = entry.put_aside(3).unwrap();
    assert_eq!(entry.put_aside(3), None, "it is aside");
    let mut replay = Replay::new([(3, entry)]);
    replay.ask("a", step()).unwrap();
    assert_eq!(replay.rest(Timestamp::UNIX_EPOCH), Rest::Deliver("a".into()));
    assert_eq!((replay.aside("a"), replay.answer("a")), (Some(3), None));
    assert!(replay.fetched("a", value.clone()));
    assert_eq!(replay.answer("a"), Some(Answer::Ended(Ending::Ok(value))));
}

/// Three children that have returned more than one page can hold.
fn family() -> (Vec<JobId>, Vec<ChildEnd>, Vec<crate::workflow::Mail>) {
    let output =
        |n: u8| Payload::trusted(format!("\"{}{n}\"", "x".repeat(JOINED_BYTES_MAX / 3 * 2)));
    let end = |n: u8| {
        let (state, output) =
            if n == 1 { (State::Dead, None) } else { (State::Done, Some(output(n))) };
        ChildEnd { id: JobId::new(), state, output, error: (n == 1).then(|| "no".to_owned()) }
    };
    let ends: Vec<ChildEnd> = (0..4).map(end).collect();
    let mail = (1..).zip(&ends).map(|(number, end)| {
        let content = crate::workflow::Content::Child(end.clone());
        crate::workflow::Mail { number, at: NOW, content }
    });
    (ends.iter().map(|end| end.id).collect(), ends.clone(), mail.collect())
}

#[test]
fn a_join_of_much_is_written_page_by_page_and_goes_on_where_it_was() {
    let (ids, ends, mail) = family();
    let ask = || Ask::Children { kind: "k".into(), ids: ids.clone(), outlives: false };
    let mut replay = Replay::default();
    replay.ask("c", ask()).unwrap();
    assert!(matches!(replay.rest(NOW), Rest::Wait(_)));
    let mut journal = replay.take().entries;
    replay.read(mail.clone());
    for page in 1..=2 {
        assert_eq!(replay.rest(NOW), Rest::Flush);
        journal.extend(replay.take().entries);
        replay.flies();
        if page == 1 {
            assert_eq!(replay.rest(NOW), Rest::Busy { until: None, mail: false });
        }
        replay.written();
        // Whoever is lost here has written so much, and another goes on.
        let mut other = Replay::new(journal.clone());
        other.ask("c", ask()).unwrap();
        other.read(mail.clone());
        let mut pages = journal.len() - 1;
        while other.rest(NOW) == Rest::Flush {
            other.take();
            pages += 1;
        }
        assert_eq!(pages, 2, "each is written once");
        assert_eq!(other.answer("c"), Some(Answer::Children(ends.clone())));
    }
    assert_eq!(replay.rest(NOW), Rest::Deliver("c".into()));
    assert_eq!(replay.answer("c"), Some(Answer::Children(ends.clone())));
    journal.extend(replay.take().entries);
    let told = |entry: &Entry| match entry {
        Entry::Joined { ends, more, .. } => Some((ends.len(), *more)),
        _ => None,
    };
    let pages: Vec<_> = journal.iter().filter_map(|(_, entry)| told(entry)).collect();
    assert_eq!(pages, [(2, true), (1, true), (1, false)]);
    // Read again, what they returned stands beside the entries.
    let values: BTreeMap<u32, Payload> = journal
        .iter_mut()
        .filter_map(|(number, entry)| Some((*number, entry.put_aside(*number)?)))
        .collect();
    assert!(journal.iter_mut().all(|(number, entry)| entry.put_aside(*number).is_none()));
    let mut again = Replay::new(journal);
    again.ask("c", ask()).unwrap();
    assert_eq!(again.rest(NOW), Rest::Deliver("c".into()));
    let mut fetched = Vec::new();
    while let Some(number) = again.aside("c") {
        assert_eq!(again.answer("c"), None);
        assert!(again.fetched("c", values[&number].clone()));
        fetched.push(number);
    }
    assert_eq!(fetched, [1, 2, 3]);
    assert_eq!(again.answer("c"), Some(Answer::Children(ends)));
}

#[test]
fn what_a_transaction_recorded_is_told_in_its_place_and_replaced() {
    let output = Payload::trusted("7".into());
    let (key, hash) = ("pay".to_owned(), None);
    let recorded = Entry::Recorded { key, hash, tries: 2, output: output.clone() };
    let mut replay = Replay::new([(4, recorded)]);
    replay.ask("pay", step()).unwrap();
    assert_eq!(replay.rest(Timestamp::UNIX_EPOCH), Rest::Deliver("pay".into()));
    assert_eq!(replay.answer("pay"), Some(Answer::Ended(Ending::Ok(output))));
    let writes = replay.take();
    assert_eq!((writes.entries[0].0, writes.forget), (5, vec![4]));
    // A number stays reserved until it is sealed; then the next try gets another one.
    assert_eq!((replay.reserve("b"), replay.reserve("b")), (6, 6));
    replay.sealed("b");
    assert_eq!((replay.reserve("b"), replay.has_reserved()), (7, true));
}

fn failed_for_good(key: &str) -> Entry {
    let ending = Ending::Err { class: ErrorClass::Permanent, message: "no".into() };
    Entry::Ended { key: key.into(), hash: None, tries: 1, took_ms: 0, ending }
}

fn died(key: &str) -> Entry {
    Entry::Died { key: key.into() }
}

#[test]
fn a_step_that_a_run_died_of_begins_anew_when_all_else_was_told() {
    let mut replay = replay(vec![ended("a"), failed_for_good("b"), ended("c"), died("b")]);
    for key in ["a", "b", "c"] {
        replay.ask(key, step()).unwrap();
    }
    for key in ["a", "c"] {
        assert_eq!(replay.rest(NOW), Rest::Deliver(key.into()));
        assert!(replay.answer(key).is_some());
    }
    go(&mut replay, "b");
    replay.ended("b", None, 1, 0, ok("2"));
    let writes = replay.take();
    assert_eq!(words(&writes), [(4, "ended", "b")]);
    assert_eq!(writes.forget, [1, 3], "its new end takes the place of the old one");
}

#[test]
fn a_failure_on_which_the_journal_goes_on_is_told_after_all() {
    let noted = Entry::Noted { key: "n".into(), value: Payload::null() };
    for (next, ask) in [(ended("c"), step()), (noted, Ask::Note { value: Payload::null() })] {
        let key = next.key().to_owned();
        let mut replay = replay(vec![failed_for_good("b"), next, died("b")]);
        replay.ask("b", step()).unwrap();
        assert_eq!(replay.rest(NOW), Rest::Deliver("b".into()), "{key}");
        assert!(matches!(replay.answer("b"), Some(Answer::Ended(Ending::Err { .. }))));
        replay.ask(&key, ask).unwrap();
        replay.rest(NOW);
        assert_eq!(replay.end(), Ok(()), "{key}");
        replay.died("b");
        assert!(replay.take().is_empty(), "{key}: it is told of one death once");
    }
}

#[test]
fn an_item_of_a_map_that_is_tried_again_makes_room_for_what_followed() {
    let mut replay = replay(vec![failed_for_good("m[0]/s"), ended("m[1]"), died("m[0]/s")]);
    assert_eq!(replay.passed("m"), Some(0));
    replay.ask("m[0]", Ask::Scope).unwrap();
    replay.ask("m[0]/s", step()).unwrap();
    assert_eq!(replay.rest(NOW), Rest::Deliver("m".into()));
    assert_eq!((replay.passed("m"), replay.passed("other")), (Some(1), Some(0)));
    replay.ask("m[1]", Ask::Scope).unwrap();
    assert_eq!(replay.rest(NOW), Rest::Deliver("m[1]".into()));
    assert!(replay.answer("m[1]").is_some());
    go(&mut replay, "m[0]/s");
    replay.ended("m[0]/s", None, 1, 0, ok("2"));
    assert_eq!(replay.passed("m"), None, "nothing is left out any more");
}

#[test]
fn what_is_new_before_the_end_of_the_journal_does_nothing_and_is_told() {
    let asks = [
        Ask::Note { value: Payload::null() },
        Ask::Start { kind: "k".into(), ids: vec![JobId::new()], outlives: false },
        Ask::Pivot,
        Ask::Answer { number: 1 },
    ];
    let slept = Entry::Slept { key: "b".into(), until: NOW };
    for ask in asks {
        for last in [ended("b"), slept.clone()] {
            let mut replay = replay(vec![ended("a"), last]);
            replay.ask("a", step()).unwrap();
            assert_eq!(replay.rest(NOW), Rest::Deliver("a".into()));
            assert!(replay.answer("a").is_some());
            assert_eq!(replay.ask("new", ask.clone()), Ok(None));
            let Rest::Diverged(diff) = replay.rest(NOW) else { panic!("{ask:?}") };
            assert_eq!(diff.code, r#"asks for "new""#);
            assert!(diff.journal.contains(r#""b" next (entry 1)"#), "{diff}");
            assert!(!replay.has_news() && !replay.is_told(), "it has done nothing");
        }
        // Beside what the journal has it is done once that was told.
        let mut beside = replay(vec![ended("a")]);
        beside.ask("new", ask.clone()).unwrap();
        beside.ask("a", step()).unwrap();
        for key in ["a", "new"] {
            assert_eq!(beside.rest(NOW), Rest::Deliver(key.into()));
            assert!(beside.answer(key).is_some());
        }
        assert!(beside.has_news() && beside.end().is_ok());
    }
}

#[test]
fn a_version_is_decided_on_once_per_name() {
    let version = Ask::Version { min: 1, max: 2 };
    let value = |text: &str| Ok(Some(Answer::Value(Payload::trusted(text.into()))));
    let mut passed = replay(vec![Entry::Slept { key: "nap".into(), until: NOW }]);
    assert_eq!(passed.ask("version x", version.clone()), value("1"));
    passed.ask("nap", Ask::Sleep { until: NOW }).unwrap();
    assert_eq!(passed.ask("version x", version.clone()), value("1"), "also past the journal");
    let mut beside = replay(vec![ended("a")]);
    beside.ask("a", step()).unwrap();
    assert_eq!(beside.ask("version x", version), value("1"), "the journal goes on");
}

#[test]
fn what_can_be_undone_is_counted_from_the_last_pivot_on() {
    let undo = || Some(Box::new(crate::job::NewJob::new("undo", Payload::null()).into()));
    let began =
        |key: &str| Entry::Began(Began { key: key.into(), hash: None, once: false, undo: undo() });
    let pivot = Entry::Pivot { key: "pivot".into() };
    assert_eq!(replay(vec![began("a"), began("b")]).undos(), 2);
    assert_eq!(replay(vec![began("a"), pivot.clone()]).undos(), 0);
    let past = replay(vec![began("a"), ended("a"), pivot, began("b"), ended("b")]);
    assert_eq!(past.undos(), 1);
}

#[test]
fn ten_thousand_steps_at_once_begin_end_and_are_told_again_in_order() {
    let keys: Vec<String> = (0..10_000).map(|n| format!("s#{n}")).collect();
    let mut live = Replay::default();
    for key in &keys {
        assert_eq!(live.ask(key, step()), Ok(None));
    }
    assert_eq!(live.rest(NOW), Rest::Go(keys.clone()));
    for key in &keys {
        assert_eq!(live.answer(key), Some(Answer::Go { tries: 0 }));
    }
    let mut entries = Vec::new();
    for key in keys.iter().rev() {
        live.ended(key, None, 1, 0, ok("1"));
        assert_eq!(live.rest(NOW), Rest::Flush);
        entries.extend(live.take().entries);
    }
    assert_eq!(live.rest(NOW), Rest::Idle);
    let mut again = Replay::new(entries);
    for key in &keys {
        assert_eq!(again.ask(key, step()), Ok(None));
    }
    for key in keys.iter().rev() {
        assert_eq!(again.rest(NOW), Rest::Deliver(key.clone()));
        assert_eq!(again.answer(key), Some(Answer::Ended(ok("1"))));
    }
    assert_eq!(again.rest(NOW), Rest::Idle);
}
