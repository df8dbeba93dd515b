//! What the engine asks of a store about runs of workflows, and what it is answered.

mod act;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::workflow::{
    ActWord, ChildEnd, Ending, Entry, Forked, Mail, ObjectKey, Parked, Waits, fork,
};
use tidemill_core::{
    JobId, Limits, NewJob, OnDuplicate, Payload, State, Token, UniqueKey, WorkerId,
};

use crate::error::{Error, Result};
use crate::request::Receipt;

pub(crate) use act::{Act, Endings};
pub use act::{RunAct, RunActView, RunAnswer, RunOrder};

/// Runs of one page, at most.
pub const PAGE_RUNS_MAX: usize = 1000;

/// Pieces of mail of one page, at most.
pub const PAGE_MAIL_MAX: usize = 1000;

/// Why children are called off whose start was cut out of the journal.
pub(crate) const FORGOTTEN: &str = "its parent goes on from before it was started";

/// What a run wants written: all of it, or nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunWrites {
    /// Nothing of this run was written before; it goes by this version of the code.
    pub begins: Option<String>,
    /// Entries of the journal, as JSON, with their numbers.
    pub entries: Vec<(u32, String)>,
    /// What stands beside entries, by their numbers.
    pub values: Vec<(u32, Payload)>,
    /// Numbers of entries that others stand for now.
    pub forget: Vec<u32>,
    /// What it shows of itself from now on.
    pub state: Option<Payload>,
    /// There is something to see to from now on if it ends otherwise than well: undos, children.
    pub owes: bool,
    /// Children that are started.
    pub children: Vec<NewJob>,
    /// Children that nobody waits for any more; they are called off.
    pub cancel: Vec<JobId>,
    /// Answers to pieces of mail, by their numbers, each an [`Ending`] as JSON.
    pub answers: Vec<(i64, String)>,
    /// It continues anew. Only with a settle that lets it wait.
    pub renewal: Option<Renewal>,
    /// What its object is from now on. Only with a settle that finishes it well, or with a renewal.
    pub object: Option<Keep>,
}

/// What an object is from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// This.
    This(Payload),
    /// Nothing any more.
    Nothing,
}

impl Keep {
    /// What is kept, if anything is.
    pub fn state(&self) -> Option<&Payload> {
        match self {
            Self::This(state) => Some(state),
            Self::Nothing => None,
        }
    }
}

/// A run that continues anew: its journal is emptied, its job keeps everything but the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// With what it continues.
    pub payload: Payload,
    /// The version of the code it goes by from now on.
    pub version: String,
    /// Numbers of mail that is of no more use.
    pub taken: Vec<i64>,
}

impl RunWrites {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there are only entries.
    pub fn is_plain(&self) -> bool {
        self.forget.is_empty() && !self.changes_run() && self.is_lone()
    }

    /// Whether a child has a unique key, which another job may hold: the run hears of that at once.
    pub(crate) fn may_clash(&self) -> bool {
        self.children.iter().any(|child| child.unique.is_some())
    }

    /// Whether the row of the run itself is changed, which is locked for that.
    pub(crate) fn changes_run(&self) -> bool {
        self.owes || self.state.is_some() || self.entries.iter().any(|(_, e)| heard(e).is_some())
    }

    /// Whether nothing is to be written beside the run and its journal.
    pub fn is_lone(&self) -> bool {
        self.values.is_empty()
            && self.children.is_empty()
            && self.cancel.is_empty()
            && self.answers.is_empty()
            && self.renewal.is_none()
            && self.object.is_none()
    }
}

/// The number of the piece of mail that an entry has taken, if it has. Most have not, and are not read for that.
pub(crate) fn heard(entry: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Signalled {
        number: i64,
    }
    #[derive(Deserialize)]
    struct Taken {
        signalled: Signalled,
    }
    let is_taken = entry.starts_with(r#"{"signalled":"#);
    let taken: Option<Taken> = is_taken.then(|| serde_json::from_str(entry).ok()).flatten();
    taken.map(|taken| taken.signalled.number)
}

/// A write to the journal of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// Whose.
    pub job: JobId,
    /// The token of its claim.
    pub token: Token,
    /// What.
    pub writes: RunWrites,
}

/// What stands in a journal under the number that a transaction of the code's own was to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seal {
    /// It was written: this entry, as JSON.
    Recorded(String),
    /// It was not, and cannot be any more.
    Sealed,
    /// The lease was lost.
    Stale,
}

impl Seal {
    pub(crate) fn of(there: Option<String>, sealed: &str, holds: bool) -> Self {
        match there {
            Some(there) if there != sealed => Self::Recorded(there),
            _ if holds => Self::Sealed,
            _ => Self::Stale,
        }
    }
}

/// A signal on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    /// To which run.
    pub to: JobId,
    /// Its name.
    pub name: String,
    /// What it carries.
    pub payload: Payload,
    /// One that was sent under the same id before is not sent again.
    pub id: Option<String>,
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalAnswer {
    /// It is in the mailbox, now or since it was sent before.
    Kept,
    /// The job has finished; nothing was kept.
    Finished,
    /// There is no such job.
    Unknown,
    /// Its mailbox has no room for it; nothing was kept.
    Full,
}

/// How many signals that nobody has taken a mailbox has room for, and of how many bytes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Signals.
    pub signals_max: u64,
    /// Their bytes, as they are kept.
    pub bytes_max: u64,
}

impl From<&Limits> for Room {
    fn from(limits: &Limits) -> Self {
        Self { signals_max: limits.mailbox_signals_max, bytes_max: limits.mailbox_bytes_max }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::from(&Limits::default())
    }
}

/// What became of a message that asked for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It was answered with this: an [`Ending`] as JSON.
    Given(String),
    /// The run has not come to it yet.
    Pending,
    /// The run has finished without an answer.
    Finished,
    /// There is no such message.
    Unknown,
}

impl Reply {
    pub(crate) fn of(answer: Option<String>, is_finished: bool) -> Self {
        match answer {
            Some(answer) => Self::Given(answer),
            None if is_finished => Self::Finished,
            None => Self::Pending,
        }
    }
}

/// What a run owes that ended otherwise than well: to undo what it did, and to call its children off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debt {
    /// The run.
    pub job: JobId,
    /// Which debt of it: one that is sent again, and ends no better, owes anew.
    pub number: i64,
}

/// An entry, with its number.
pub(crate) type Numbered = (u32, Entry);

/// The entries of a journal that was read.
pub(crate) fn entries(rows: &[EntryRow]) -> Result<Vec<Numbered>> {
    let read = |row: &EntryRow| serde_json::from_str(&row.entry).map(|entry| (row.number, entry));
    let read = rows.iter().map(read).collect::<serde_json::Result<_>>();
    read.map_err(|e| Error::Database { reason: e.to_string() })
}

/// Children that were not started, since another job holds their unique key: whose they are, and how they have ended.
pub(crate) fn turned_away<'a>(
    children: impl IntoIterator<Item = &'a NewJob>,
    receipts: &[Receipt],
) -> Vec<(JobId, ChildEnd)> {
    let pairs = children.into_iter().zip(receipts).filter(|(job, receipt)| receipt.id() != job.id);
    let told = pairs.filter_map(|(job, receipt)| {
        let holder = receipt.known().map(|id| id.to_string());
        let holder = holder.as_deref().unwrap_or("a job that is out of reach");
        let error = format!("it was not started: it is a duplicate of {holder}");
        let (id, state, error) = (job.id, State::Cancelled, Some(error));
        Some((job.options.parent?, ChildEnd { id, state, output: None, error }))
    });
    told.collect()
}

/// The same child, to be kept until the job has ended that holds its key: the run has called that one off.
pub(crate) fn for_after(child: &NewJob) -> NewJob {
    let after = |key| UniqueKey { on_duplicate: OnDuplicate::RunOnceMore, ..key };
    NewJob { unique: child.unique.clone().map(after), ..child.clone() }
}

/// What somebody has made of the step of an entry.
pub(crate) fn became(entry: Entry) -> Option<Ending> {
    match entry {
        Entry::Ended { ending, .. } => Some(ending),
        Entry::Signalled { payload, .. } => Some(Ending::Ok(payload)),
        _ => None,
    }
}

/// How many entries a journal may have from now on, as it is kept with the act.
pub(crate) fn allowed(entries_max: Option<u32>) -> Endings {
    (None, entries_max.map(|entries| Ending::Ok(Payload::trusted(entries.to_string()))))
}

/// As JSON text.
pub(crate) fn written<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::Database { reason: e.to_string() })
}

/// From JSON text, where there is some.
pub(crate) fn unwritten<T: serde::de::DeserializeOwned>(text: Option<&str>) -> Result<Option<T>> {
    let read = text.map(serde_json::from_str).transpose();
    read.map_err(|e| Error::Database { reason: e.to_string() })
}

/// The act of a word that was kept.
pub(crate) fn act_of(word: &str) -> Result<ActWord> {
    ActWord::of(word)
        .ok_or_else(|| Error::Database { reason: format!("{word:?} is no act on a run") })
}

/// What a fork gets of this journal; or why there is none.
pub(crate) fn forked(
    rows: &[EntryRow],
    to: &str,
    (instead, is_undone): (bool, bool),
) -> Result<std::result::Result<Forked, String>> {
    let forked = fork(&entries(rows)?, to);
    Ok(forked.and_then(|forked| {
        if is_undone && !forked.owed.is_empty() {
            let owed = forked.owed.join(", ");
            return Err(format!(
                "what its fork would build on is undone, or about to be: {owed}; enqueue it anew"
            ));
        }
        if instead && !forked.owed.is_empty() {
            let owed = forked.owed.join(", ");
            return Err(format!(
                "called off, it would undo what its fork builds on: {owed}; fork it without that"
            ));
        }
        Ok(forked)
    }))
}

/// What is kept of a run beside its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunView {
    /// Its job.
    pub job: JobId,
    /// When its journal began.
    pub began_at: Timestamp,
    /// The version of the code it began with; empty: it was not said.
    pub version: String,
    /// What it waits for.
    pub waits: Option<Waits>,
    /// What it shows of itself.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub state: Option<Payload>,
    /// Why it does not go on: its code differs from its journal, or asked for what cannot be.
    pub parked: Option<Parked>,
    /// Somebody paused it.
    pub paused: bool,
    /// How many entries its journal may have, if an operator has set that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_entries_max: Option<u32>,
    /// What it did is being undone, or is, by the flow of the same id.
    pub undone: bool,
    /// How many signals nobody has taken.
    #[serde(default)]
    pub signals_unread: u64,
}

/// An entry of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRow {
    /// Its number.
    pub number: u32,
    /// When it was written.
    pub at: Timestamp,
    /// It, as JSON.
    pub entry: String,
}

/// What stands beside an entry of a journal, with the entry: whose it is says the entry alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The entry, as JSON.
    pub entry: String,
    /// What stands beside it.
    pub value: Payload,
}

/// Which runs to list. Every condition given must hold. Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// Of this kind.
    pub kind: Option<String>,
    /// Those that are parked.
    pub parked: bool,
    /// Those that have not finished.
    pub unfinished: bool,
    /// Made before this one: the last of the page before.
    pub before: Option<JobId>,
    /// At most this many. Defaults to 0, which means 50; at most 1,000.
    pub limit: usize,
}

impl RunFilter {
    /// The number of rows of a page.
    pub fn page_rows(&self) -> usize {
        if self.limit == 0 { 50 } else { self.limit.min(PAGE_RUNS_MAX) }
    }
}

/// Durable memory of runs: journals and mailboxes.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Writes to journals, each only if its token still holds. Answers stand in the order of the items; `false`: the
    /// lease was lost, and nothing was written. Calls that come while one is under way share the next commit.
    async fn append(&self, worker: WorkerId, items: Vec<Append>) -> Result<Vec<bool>>;

    /// Writes one entry unless a transaction of a caller has written under its number; one that is under way is waited
    /// for.
    async fn seal(&self, worker: WorkerId, item: Append) -> Result<Seal>;

    /// The journal of a run, in order, and what else is kept of it.
    async fn journal(&self, job: JobId) -> Result<(Vec<EntryRow>, Option<RunView>)>;

    /// What stands beside an entry of a journal, and the entry, of one moment.
    async fn value(&self, job: JobId, number: u32) -> Result<Option<Beside>>;

    /// A page of the mail of a run after this number, in order; at most [`PAGE_MAIL_MAX`] pieces, and one more
    /// that says whether others follow.
    async fn mail_page(&self, job: JobId, after: i64, limit: usize) -> Result<Vec<Mail>>;

    /// All of it, read page by page.
    async fn mail(&self, job: JobId, mut after: i64) -> Result<Vec<Mail>> {
        let mut mail = Vec::new();
        loop {
            let page = self.mail_page(job, after, PAGE_MAIL_MAX).await?;
            let is_last = page.len() < PAGE_MAIL_MAX;
            after = page.last().map_or(after, |piece| piece.number);
            mail.extend(page);
            if is_last {
                return Ok(mail);
            }
        }
    }

    /// Puts signals into the mailboxes of their runs, in this order, and wakes those that wait for them. `start` is
    /// enqueued in the same transaction before, as [`Store::enqueue`](crate::Store::enqueue) does, and answered. One
    /// for which its mailbox has no room is refused; sent again, one that is there stays so.
    async fn signal(
        &self,
        start: Option<NewJob>,
        signals: Vec<Signal>,
        room: Room,
    ) -> Result<(Option<Receipt>, Vec<SignalAnswer>)>;

    /// What became of the message that was sent to a run under this id.
    async fn reply(&self, job: JobId, sent: &str) -> Result<Reply>;

    /// What the object of this queue and key is.
    async fn object(&self, queue: &str, key: ObjectKey<'_>) -> Result<Option<Payload>>;

    /// Acts on a run, and keeps who did it and why, in one transaction. A journal is read in the transaction that
    /// changes it, while no claim can get the run.
    async fn change_run(&self, job: JobId, order: RunOrder) -> Result<RunAnswer>;

    /// What was done with a run from outside, in order.
    async fn run_acts(&self, job: JobId) -> Result<Vec<RunActView>>;

    /// A page of runs, newest first.
    async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>>;

    /// What runs owe that ended otherwise than well, in the order in which they came to owe it, after one: at most so
    /// many. While a debt is there, its run does not go on, and its journal stays as it is.
    async fn debts(&self, after: Option<Debt>, limit: usize) -> Result<Vec<Debt>>;

    /// Those of these jobs that are children of this run, whether or not somebody here can read what they carry.
    async fn children_of(&self, run: JobId, named: Vec<JobId>) -> Result<Vec<JobId>>;

    /// What this run did is undone from now on: it never goes on. `false`: the debt was paid already.
    async fn undo_run(&self, debt: Debt) -> Result<bool>;

    /// What this run owed was seen to, once these children are called off with it. `false`: the debt was paid already,
    /// and nobody is called off: the run may have gone on.
    async fn pay(&self, debt: Debt, orphans: &[JobId], reason: &str) -> Result<bool>;
}
