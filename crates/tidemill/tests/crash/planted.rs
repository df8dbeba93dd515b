//! Planted bugs: a history in which all is well is accepted, and each way to break it is named. A
//! check that nothing can fail proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use tidemill::{Job, JobId, JobView, Payload, Priority, Receipt, State, Timestamp, Token};

use super::check::Books;
use super::history::{Effect, History, Intent, Way};
use super::verdict::Remembered;
use super::work::{Plan, Work, child_of};

/// A process that was frozen.
const ZOMBIE: u32 = 66;
/// A job that nobody asked for.
const STRANGER: JobId = JobId(uuid::Uuid::nil());

/// A small history with one job of every sort, and what the store says of it.
struct Story {
    history: History,
    jobs: BTreeMap<JobId, JobView>,
    ledger: BTreeSet<JobId>,
    frozen: BTreeSet<u32>,
    tokens: i64,
}

impl Story {
    /// A plain job, a flaky one, a parent with its child, a fatal one, one in a transaction, one
    /// rolled back, and two of a key, the second joined to the first; a third lived after them. And two
    /// of one line.
    fn well_told() -> (Self, Cast) {
        let history = History {
            intents: BTreeMap::new(),
            acks: BTreeMap::new(),
            effects: BTreeMap::new(),
            effects_in_all: 0,
            stale: 1,
        };
        let (jobs, ledger) = (BTreeMap::new(), BTreeSet::new());
        let mut story = Self { history, jobs, ledger, frozen: BTreeSet::from([ZOMBIE]), tokens: 0 };
        let cast = Cast {
            plain: story.run(Plan::Plain, None, Way::Plainly),
            flaky: story.run(Plan::Flaky(2), None, Way::Plainly),
            parent: story.run(Plan::Parent, None, Way::Plainly),
            fatal: story.run(Plan::Fatal, None, Way::Plainly),
            committed: story.run(Plan::Plain, None, Way::InTransaction),
            first: story.run(Plan::Plain, Some("key"), Way::Plainly),
            rolled_back: new_id(),
            joined: new_id(),
            in_front: story.run(Plan::Plain, None, Way::Plainly),
        };
        let behind = story.run(Plan::Plain, None, Way::Plainly);
        for id in [cast.in_front, behind] {
            story.history.intents.get_mut(&id).unwrap().line = Some("line".to_owned());
        }
        story.run(Plan::Plain, Some("key"), Way::Plainly);
        story.ledger.insert(cast.committed);
        story.intend(cast.rolled_back, Plan::Plain, None, Way::RolledBack);
        story.intend(cast.joined, Plan::Plain, Some("key"), Way::Plainly);
        story.history.acks.insert(cast.joined, Receipt::Joined { id: cast.first });
        story.finish(child_of(cast.parent), Plan::Child);
        (story, cast)
    }

    fn intend(&mut self, id: JobId, plan: Plan, unique: Option<&str>, way: Way) {
        let unique = unique.map(str::to_owned);
        self.history.intents.insert(id, Intent { id, plan, unique, line: None, way });
    }

    /// A job from its intent to its end.
    fn run(&mut self, plan: Plan, unique: Option<&str>, way: Way) -> JobId {
        let id = new_id();
        self.intend(id, plan, unique, way);
        self.history.acks.insert(id, Receipt::Enqueued { id });
        self.finish(id, plan);
        id
    }

    /// Its attempts and its end.
    fn finish(&mut self, id: JobId, plan: Plan) {
        let attempts = if let Plan::Flaky(failures) = plan { failures + 1 } else { 1 };
        for attempt in 1..=attempts {
            self.attempt(id, attempt, 1);
        }
        let state = if plan == Plan::Fatal { State::Dead } else { State::Done };
        self.jobs.insert(id, view(id, plan, state, Token(self.tokens)));
    }

    /// One more effect, under a new token.
    fn attempt(&mut self, id: JobId, attempt: u16, pid: u32) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let effect = Effect { id, token, attempt, pid, stale: 0 };
        self.history.effects.entry(id).or_default().push(effect);
        token
    }

    fn job(&mut self, id: JobId) -> &mut JobView {
        self.jobs.get_mut(&id).unwrap()
    }

    fn effects(&mut self, id: JobId) -> &mut Vec<Effect> {
        self.history.effects.get_mut(&id).unwrap()
    }

    fn audit(&self) -> Vec<String> {
        let Self { history, jobs, ledger, frozen, .. } = self;
        Books { history, jobs, ledger, frozen }.audit()
    }
}

/// Who is in the story.
struct Cast {
    plain: JobId,
    flaky: JobId,
    parent: JobId,
    fatal: JobId,
    committed: JobId,
    rolled_back: JobId,
    first: JobId,
    joined: JobId,
    in_front: JobId,
}

fn new_id() -> JobId {
    JobId(uuid::Uuid::from_u128(JobId::new().0.as_u128() & !1))
}

fn view(id: JobId, plan: Plan, state: State, token: Token) -> JobView {
    let payload = serde_json::to_string(&Work { plan, takes_ms: 0 }).unwrap();
    let job = tidemill::core::Job {
        id,
        kind: Work::KIND.to_owned(),
        queue: "default".to_owned(),
        priority: Priority::Normal,
        tenant: None,
        key: None,
        unique_key: None,
        payload: Payload::trusted(payload),
        options: tidemill::core::Options::default(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    let output = (state == State::Done).then(|| Payload::trusted(token.0.to_string()));
    JobView {
        job,
        state,
        attempt: 1,
        lost: 0,
        due_at: None,
        gate: None,
        worker: None,
        token: Some(token),
        finished_at: Some(Timestamp::UNIX_EPOCH),
        output,
        error: None,
        cancel_requested: false,
        bare: false,
        progress: None,
    }
}

#[test]
fn a_history_in_which_all_is_well_is_accepted() {
    let (mut story, cast) = Story::well_told();
    assert_eq!(story.audit(), Vec::<String>::new());
    // A worker that was lost, and one that was frozen and came back late, are no violations.
    let last = story.attempt(cast.plain, 1, 2);
    story.job(cast.plain).token = Some(last);
    story.job(cast.plain).output = Some(Payload::trusted(last.0.to_string()));
    story.effects(cast.plain).reverse();
    story.effects(cast.plain)[1].pid = ZOMBIE;
    assert_eq!(story.audit(), Vec::<String>::new());
}

type Bug = (&'static str, fn(&mut Story, &Cast), fn(&Cast) -> String);

const BUGS: [Bug; 19] = [
    (
        "an acknowledged job that is not there",
        |story, cast| drop(story.jobs.remove(&cast.plain)),
        |cast| format!("lost: {} was answered", cast.plain),
    ),
    (
        "a duplicate that was joined to nobody",
        |story, cast| drop(story.jobs.remove(&cast.first)),
        |cast| format!("lost: {} was answered", cast.joined),
    ),
    (
        "a duplicate that was written all the same",
        |story, cast| story.finish(cast.joined, Plan::Plain),
        |cast| format!("lost: {} was answered", cast.joined),
    ),
    (
        "a job that nobody asked for",
        |story, _| drop(story.jobs.insert(STRANGER, lone())),
        |_| format!("unexpected: {STRANGER}"),
    ),
    (
        "an effect of a job that never was",
        |story, _| {
            story.attempt(STRANGER, 1, 1);
        },
        |_| format!("unknown: an effect of {STRANGER}"),
    ),
    (
        "a child of a parent that is not done",
        |story, cast| story.job(cast.parent).state = State::Running,
        |cast| format!("unexpected: {}", child_of(cast.parent)),
    ),
    (
        "a parent whose child is missing",
        |story, cast| drop(story.jobs.remove(&child_of(cast.parent))),
        |cast| format!("childless: {}", cast.parent),
    ),
    (
        "a job that never finished",
        |story, cast| story.job(cast.plain).state = State::Ready,
        |cast| format!("{} (Plain) is Ready", cast.plain),
    ),
    (
        "a job that can only fail and is done",
        |story, cast| story.job(cast.fatal).state = State::Done,
        |cast| format!("{} (Fatal) is Done", cast.fatal),
    ),
    (
        "one attempt that ran twice",
        |story, cast| {
            let twin = story.effects(cast.plain)[0].clone();
            story.effects(cast.plain).push(twin);
        },
        |cast| format!("{} ran twice under one token", cast.plain),
    ),
    (
        "two attempts at once though nobody was frozen",
        |story, cast| {
            let last = story.attempt(cast.plain, 1, 2);
            story.job(cast.plain).token = Some(last);
            story.effects(cast.plain).reverse();
        },
        |cast| format!("{} ran twice at once", cast.plain),
    ),
    (
        "a stale token that was accepted",
        |story, cast| {
            story.attempt(cast.plain, 1, 2);
        },
        |cast| format!("{} was settled by", cast.plain),
    ),
    (
        "an outcome that holds another attempt's output",
        |story, cast| story.job(cast.plain).output = Some(Payload::trusted("0".into())),
        |cast| format!("{} was settled by", cast.plain),
    ),
    (
        "a failure that spent no attempt",
        |story, cast| story.effects(cast.flaky)[1].attempt = 1,
        |cast| format!("{} (Flaky(2)) has attempts [1, 1, 3]", cast.flaky),
    ),
    (
        "a lost worker that spent an attempt",
        |story, cast| {
            let last = story.attempt(cast.plain, 2, 2);
            story.job(cast.plain).token = Some(last);
        },
        |cast| format!("{} (Plain) has attempts [1, 2]", cast.plain),
    ),
    (
        "two live jobs of one key",
        |story, cast| {
            let last = story.attempt(cast.first, 1, 2);
            story.job(cast.first).token = Some(last);
        },
        |_| "two live jobs of \"key\"".to_owned(),
    ),
    (
        "a job that ran after the one behind it in its line",
        |story, cast| {
            let last = story.attempt(cast.in_front, 1, 2);
            story.job(cast.in_front).token = Some(last);
        },
        |_| "out of order in \"line\"".to_owned(),
    ),
    (
        "a committed transaction without its job's row",
        |story, cast| {
            story.ledger.remove(&cast.committed);
        },
        |_| "torn: ".to_owned(),
    ),
    (
        "a job whose transaction was rolled back",
        |story, cast| story.finish(cast.rolled_back, Plan::Plain),
        |cast| format!("unexpected: {}", cast.rolled_back),
    ),
];

fn lone() -> JobView {
    view(STRANGER, Plan::Plain, State::Done, Token(1))
}

#[test]
fn every_planted_bug_is_named() {
    for (bug, plant, name) in BUGS {
        let (mut story, cast) = Story::well_told();
        plant(&mut story, &cast);
        let (wrong, name) = (story.audit(), name(&cast));
        assert!(wrong.iter().any(|wrong| wrong.contains(&name)), "{bug}: no {name:?} in {wrong:?}");
    }
}

#[test]
fn a_final_state_that_changes_is_named() {
    let (mut story, cast) = Story::well_told();
    let seen: Vec<_> = story.jobs.values().cloned().collect();
    let mut remembered = Remembered::default();
    assert!(remembered.see(&seen).is_empty());
    assert!(remembered.see(&seen).is_empty(), "the same again is no change");
    assert!(remembered.changed(&story.jobs).is_empty());

    let name = format!("{} left its final state", cast.plain);
    let changes: [fn(&mut JobView); 3] = [
        |view| view.state = State::Dead,
        |view| view.token = Some(Token(999)),
        |view| view.finished_at = Some(Timestamp::MAX),
    ];
    for change in changes {
        let mut other = story.jobs[&cast.plain].clone();
        change(&mut other);
        assert!(remembered.see(&[other])[0].contains(&name));
    }
    story.job(cast.plain).state = State::Ready;
    assert!(remembered.changed(&story.jobs)[0].contains(&name), "one that runs again");
    story.jobs.remove(&cast.plain);
    assert!(remembered.changed(&story.jobs)[0].contains(&name), "one that is gone");
}
