//! The SQLite backend: one file, one writer thread, readers beside it.
//!
//! Everything that writes goes through `writer`, which commits in groups; everything that only reads goes to `readers`.
//! Each verb is a file of plain functions over a connection, and this one only hands them on. All tables are prefixed
//! `tidemill_`, because they live in the user's own database.

pub mod adapter;
mod audit;
mod bound;
mod cancel;
mod claim;
mod credentials;
mod crowd;
mod dead;
mod depth;
mod doors;
mod edit;
mod enqueue;
mod error;
mod examine;
mod expire;
mod finish;
mod fire;
mod flows;
mod gates;
mod group;
mod held;
mod holding;
mod lacking;
mod lane;
mod lease;
mod letters;
mod lines;
mod marks;
mod measure;
mod migrate;
mod news;
mod open;
mod plans;
mod query;
mod queues;
mod reach;
mod readers;
mod ready;
mod rescue;
mod rows;
mod runs;
mod schedules;
mod settle;
mod standing;
mod stowaways;
mod streams;
mod sweep;
mod tenants;
mod unheard;
mod values;
mod watch;
mod webhooks;
mod workers;
mod writer;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::Connection;
use tidemill_core::dead::{DeadFilter, DeadPlace, RedriveRule, Triage};
use tidemill_core::gate::GateView;
use tidemill_core::job::edit::Edit;
use tidemill_core::retention::Finished;
use tidemill_core::share::Served;
use tidemill_core::why::LaneView;
use tidemill_core::{By, Clock, JobId, NewJob, Payload, RuleBook, WorkerId};

use crate::error::{Error, Result};
use crate::late::has_deadlines;
use crate::open::OpenOptions;
use crate::over::Over;
use crate::request::{
    Beat, CancelAnswer, Claim, ClaimRequest, EditAnswer, Expired, Receipt, RescueRules, Rescued,
    SettleItem, Settled, WorkerCard,
};
use crate::schedule::{FireAnswer, FireRequest, FireView, ScheduleChange, ScheduleView, Which};
use crate::store::Store;
use crate::stream::{StreamAnswer, StreamItem, StreamPage, Streams, ephemeral};
use crate::together;
use crate::view::{
    AttemptView, Crowd, DeadGroup, DeadLetter, DepthView, End, Finding, JobFilter, JobPage,
    JobPlace, JobView, Lacking, Lacks, LineView, QueueRules, QueueView, Unfinished, WorkerView,
};
use crate::wake::{Hint, Wake};
use news::Listeners;
use open::Place;
use readers::Readers;
use unheard::Unheard;
use watch::Watch;
use writer::{Durability, Turn, Writer};

/// A store in a SQLite database.
#[derive(Debug)]
pub struct Sqlite {
    place: Place,
    clock: Clock,
    writer: Writer,
    readers: Readers,
    listeners: Arc<Listeners>,
    watch: Mutex<Option<Watch>>,
}

impl Sqlite {
    /// Opens a file, or `:memory:` for a database that lives as long as this value.
    pub async fn open(file: &str, options: OpenOptions) -> Result<Self> {
        let place = Place::parse(file)?;
        let file = place.file().map(Path::to_owned);
        let opening = tokio::task::spawn_blocking(move || Self::open_blocking(place, options));
        let opened = opening
            .await
            .map_err(|e| Error::Unavailable { reason: e.to_string(), unknown: false })?;
        opened.map_err(|error| error.of_file(file.as_deref()))
    }

    async fn change_rules(
        &self,
        name: &str,
        rules: Option<QueueRules>,
        over: Over,
    ) -> Result<bool> {
        let (rule, mut changed) = (name.to_owned(), Some(held::Changed::by(name)));
        let set = move |turn: &mut Turn<'_>| queues::set_rules(turn, &rule, rules.as_ref(), over);
        let is_set = self.write(set).await?;
        self.hint(Hint::Rules);
        // Who is held may try anew, a piece after the other: a million of them would keep everybody waiting.
        while let Some(piece) = changed.take().filter(|_| is_set) {
            changed = self.write(move |turn| piece.clone().release(turn)).await?;
        }
        Ok(is_set)
    }

    fn open_blocking(place: Place, options: OpenOptions) -> Result<Self> {
        if !options.migrate && !place.exists() {
            return Err(Error::SchemaOlder { found: 0, known: migrate::KNOWN });
        }
        let conn = open::writer(&place)?;
        migrate::migrate(&conn, options.migrate)?;
        let listeners = Arc::new(Listeners::default());
        let (clock, heard) = (options.clock.clone(), Arc::clone(&listeners));
        let writer = Writer::start(conn, &place, clock, heard, options.keys)?;
        let readers = Readers::new(&place, &writer);
        let watch = place
            .file()
            .and_then(|file| Watch::start(file, writer.clone(), Arc::clone(&listeners)));
        let watch = Mutex::new(watch);
        Ok(Self { place, clock: options.clock, writer, readers, listeners, watch })
    }

    fn now_us(&self) -> i64 {
        self.clock.now().as_microsecond()
    }

    async fn write<T: Send + 'static>(
        &self,
        act: impl FnMut(&mut Turn<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.write(Durability::Full, act).await
    }

    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.read(look).await
    }
}

#[async_trait]
impl Streams for Sqlite {
    async fn append_stream(
        &self,
        worker: WorkerId,
        items: Vec<StreamItem>,
        bytes_max: u64,
    ) -> Result<Vec<StreamAnswer>> {
        let followed = &self.listeners.followed;
        let is_unheard = |item: &StreamItem| item.said.is_empty() && !followed.has(item.job);
        if items.iter().all(is_unheard) {
            return Ok(vec![StreamAnswer::Kept { last: 0 }; items.len()]);
        }
        let items = Arc::new(items);
        let given = Arc::clone(&items);
        let answers =
            self.write(move |turn| streams::append(turn, worker, &given, bytes_max)).await?;
        for hint in ephemeral(&items, &answers, self.clock.now(), &self.listeners.followed) {
            self.hint(hint);
        }
        Ok(answers)
    }

    async fn streams_after(&self, jobs: Vec<(JobId, u64)>) -> Result<Vec<StreamPage>> {
        self.read(move |conn| streams::after(conn, &jobs)).await
    }
}

#[async_trait]
impl Store for Sqlite {
    fn backend(&self) -> &'static str {
        "sqlite"
    }

    fn wake(&self) -> &Wake {
        &self.listeners.wake
    }

    fn hint(&self, hint: Hint) {
        match &hint {
            Hint::Watch { id } => self.listeners.watch(*id),
            Hint::Follow { ids } => self.listeners.follow(ids),
            Hint::Wanted { queue } => self.listeners.wanted.add(queue),
            Hint::Ready { queue } => self.writer.call(queue),
            _ => {}
        }
        self.listeners.wake.tell(hint);
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(rows::time(self.now_us()))
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Receipt>> {
        let write = move |turn: &mut Turn<'_>| {
            let receipts = bound::enqueue_bounded(turn, &jobs)?;
            // An error takes back what was written.
            receipts.as_deref().map_or(Ok(()), |receipts| together::check(&jobs, receipts))?;
            Ok(receipts)
        };
        let receipts = self.write(write).await?;
        receipts.map_err(Error::QueueFull)
    }

    async fn claim(&self, mut ask: ClaimRequest) -> Result<Claim> {
        if let Some(stand) = ask.stand.take() {
            let seen = Some(stand.since);
            let answer = self.writer.stand(ask, stand).await?;
            let (now, jobs) = (self.clock.now(), Vec::new());
            return Ok(answer.unwrap_or(Claim { token: None, now, jobs, next_due: None, seen }));
        }
        let writer = self.writer.clone();
        let claim = move |turn: &mut Turn<'_>| claim::claim(turn, &ask);
        let hand = move |claim: Claim| (Unheard::new(claim.token, writer), claim);
        let (unheard, claim) = self.writer.write_for(Durability::Lazy, claim, hand).await?;
        unheard.hear();
        Ok(claim)
    }

    async fn settle(&self, worker: WorkerId, items: Vec<SettleItem>) -> Result<Vec<Settled>> {
        self.write(move |turn| settle::settle(turn, worker, &items)).await
    }

    async fn register(&self, card: WorkerCard) -> Result<()> {
        self.write(move |turn| workers::register(turn, &card)).await
    }

    async fn beat(&self, worker: WorkerId) -> Result<Beat> {
        self.writer.write(Durability::Lazy, move |turn| workers::beat(turn, worker)).await
    }

    async fn deregister(&self, worker: WorkerId) -> Result<Rescued> {
        self.write(move |turn| rescue::deregister(turn, worker)).await
    }

    async fn rescue(&self, rules: RescueRules) -> Result<Rescued> {
        let asked_at = self.now_us();
        self.write(move |turn| rescue::rescue(turn, rules, asked_at)).await
    }

    async fn expire(&self, book: &RuleBook) -> Result<Expired> {
        let (now, rules) = (self.now_us(), has_deadlines(book).then(|| book.clone()));
        let found = self.read(move |conn| expire::find(conn, rules.as_ref(), now)).await?;
        let Some(late) = found else {
            return Ok(Expired::default());
        };
        let rules = book.clone();
        self.write(move |turn| expire::expire(turn, &rules, &late)).await
    }

    async fn cancel(&self, ids: Vec<JobId>, reason: &str) -> Result<Vec<CancelAnswer>> {
        let reason = reason.to_owned();
        self.write(move |turn| cancel::cancel(turn, &ids, &reason)).await
    }

    async fn run_now(&self, id: JobId) -> Result<bool> {
        self.write(move |turn| cancel::run_now(turn, id)).await
    }

    async fn edit(&self, id: JobId, edit: &Edit) -> Result<EditAnswer> {
        let edit = edit.clone();
        self.write(move |turn| edit::edit(turn, id, &edit)).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        let now = self.now_us();
        self.read(move |conn| query::job(conn, now, id)).await
    }

    async fn jobs_of(&self, ids: Vec<JobId>) -> Result<Vec<JobView>> {
        let now = self.now_us();
        self.read(move |conn| query::jobs_of(conn, now, &ids)).await
    }

    async fn ends_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, Option<End>>> {
        self.read(move |conn| query::ends_of(conn, ids)).await
    }

    async fn unfinished_of(&self, ids: Vec<JobId>) -> Result<HashSet<JobId>> {
        self.read(move |conn| query::unfinished_of(conn, ids)).await
    }

    async fn begun_of(&self, ids: Vec<JobId>) -> Result<HashSet<JobId>> {
        self.read(move |conn| query::begun_of(conn, ids)).await
    }

    async fn jobs(&self, filter: &JobFilter) -> Result<JobPage> {
        let (now, filter) = (self.now_us(), filter.clone());
        self.read(move |conn| query::jobs(conn, now, &filter)).await
    }

    async fn line(&self, id: JobId) -> Result<Option<LineView>> {
        self.read(move |conn| lines::place(conn, id)).await
    }

    async fn key_holder(&self, id: JobId) -> Result<Option<JobId>> {
        self.read(move |conn| query::key_holder(conn, id)).await
    }

    async fn blocked_due(&self, id: JobId) -> Result<Option<Timestamp>> {
        self.read(move |conn| query::blocked_due(conn, id)).await
    }

    async fn queues_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, String>> {
        self.read(move |conn| query::queues_of(conn, &ids)).await
    }

    async fn places_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, JobPlace>> {
        self.read(move |conn| query::places_of(conn, &ids)).await
    }

    async fn lane(&self, id: JobId) -> Result<Option<LaneView>> {
        let Some(place) = self.read(move |conn| lane::place(conn, id)).await? else {
            return Ok(None);
        };
        let (now, of) = (self.now_us(), place.lane.clone());
        let served = move |turn: &mut Turn<'_>| Ok(turn.marks.served(&of).map(Served::behind));
        let served = self.writer.write(Durability::Lazy, served).await?;
        self.read(move |conn| lane::look(conn, now, &place, served.as_deref().unwrap_or_default()))
            .await
            .map(Some)
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptView>> {
        self.read(move |conn| query::attempts(conn, id)).await
    }

    async fn unfinished(&self) -> Result<Unfinished> {
        self.read(queues::unfinished).await
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        let now = self.now_us();
        self.read(move |conn| queues::queues(conn, now)).await
    }

    async fn queue_rules(&self) -> Result<RuleBook> {
        self.read(queues::rules).await
    }

    async fn set_queue(&self, name: &str, rules: Option<QueueRules>) -> Result<bool> {
        let over = rules.as_ref().map_or(Over::Any, Over::of);
        self.change_rules(name, rules, over).await
    }

    async fn replace_queue(&self, name: &str, was: u64, rules: Option<QueueRules>) -> Result<bool> {
        self.change_rules(name, rules, Over::read(was)).await
    }

    async fn lacking(&self, lacks: &Lacks) -> Result<Option<Lacking>> {
        let lacks = lacks.clone();
        self.read(move |conn| lacking::find(conn, &lacks)).await
    }

    async fn queue_names(&self) -> Result<Vec<String>> {
        self.read(queues::names).await
    }

    async fn gates(&self, names: &[String]) -> Result<Vec<GateView>> {
        let names = names.to_vec();
        self.read(move |conn| gates::views(conn, &names)).await
    }

    async fn held_of(&self, queue: &str, gates: &[String]) -> Result<Vec<u64>> {
        let (queue, gates) = (queue.to_owned(), gates.to_vec());
        self.read(move |conn| gates::held_of(conn, &queue, &gates)).await
    }

    async fn crowd(&self, queue: &str) -> Result<Crowd> {
        let (queue, now) = (queue.to_owned(), self.now_us());
        self.read(move |conn| crowd::look(conn, now, &queue)).await
    }

    async fn depths(&self, queues: &[String]) -> Result<Vec<DepthView>> {
        self.writer.write(Durability::Lazy, depth::tend).await?;
        let (now, queues) = (self.now_us(), queues.to_vec());
        self.read(move |conn| depth::depths(conn, now, &queues)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>> {
        self.read(workers::workers).await
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        before: Option<DeadPlace>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let filter = filter.clone();
        self.read(move |conn| letters::list(conn, &filter, before, limit)).await
    }

    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>> {
        let filter = filter.clone();
        self.read(move |conn| letters::groups(conn, &filter)).await
    }

    async fn dead_note(
        &self,
        ids: &[JobId],
        by: &str,
        text: &str,
        triage: Option<Triage>,
        archived: Option<bool>,
    ) -> Result<u64> {
        let (ids, by, text) = (ids.to_vec(), by.to_owned(), text.to_owned());
        self.write(move |turn| dead::note(turn, &ids, &by, &text, triage, archived)).await
    }

    async fn dead_replay(
        &self,
        ids: &[JobId],
        by: By<'_>,
        payload: Option<Payload>,
    ) -> Result<Vec<JobId>> {
        let (ids, who, why) = (ids.to_vec(), by.who.to_owned(), by.why.map(str::to_owned));
        self.write(move |turn| {
            let by = By { who: &who, why: why.as_deref() };
            dead::replay(turn, &ids, by, payload.as_ref())
        })
        .await
    }

    async fn redrive_rules(&self) -> Result<Vec<RedriveRule>> {
        self.read(dead::redrive_rules).await
    }

    async fn set_redrive_rule(&self, name: &str, rule: Option<RedriveRule>) -> Result<()> {
        let name = name.to_owned();
        self.write(move |turn| dead::set_redrive_rule(turn, &name, rule.as_ref())).await
    }

    async fn redrive(&self, rule: &RedriveRule, limit: usize, by: By<'_>) -> Result<Vec<JobId>> {
        dead::redrive(self, rule, limit, by).await
    }

    async fn schedules(&self, which: &Which) -> Result<Vec<ScheduleView>> {
        let which = which.clone();
        self.read(move |conn| schedules::list(conn, &which)).await
    }

    async fn change_schedules(&self, changes: Vec<ScheduleChange>) -> Result<bool> {
        self.write(move |turn| schedules::change(turn, &changes)).await
    }

    async fn fire(&self, ask: FireRequest) -> Result<FireAnswer> {
        self.write(move |turn| fire::fire(turn, &ask)).await
    }

    async fn fires(&self, name: &str, limit: usize) -> Result<Vec<FireView>> {
        let name = name.to_owned();
        self.read(move |conn| schedules::history(conn, &name, limit)).await
    }

    async fn finished_after(&self, after: Option<JobId>, limit: usize) -> Result<Vec<Finished>> {
        self.read(move |conn| sweep::finished_after(conn, after, limit)).await
    }

    async fn purge(&self, ids: &[JobId]) -> Result<u64> {
        let ids = ids.to_vec();
        self.write(move |turn| sweep::purge(turn, &ids)).await
    }

    async fn take_duty(
        &self,
        name: &str,
        holder: WorkerId,
        ttl: Duration,
    ) -> Result<Option<Timestamp>> {
        let name = name.to_owned();
        let take = move |turn: &mut Turn<'_>| workers::take_duty(turn, &name, holder, ttl);
        self.writer.write(Durability::Lazy, take).await
    }

    async fn leave_duty(&self, name: &str, holder: WorkerId) -> Result<()> {
        let name = name.to_owned();
        let leave = move |turn: &mut Turn<'_>| workers::leave_duty(turn, &name, holder);
        self.writer.write(Durability::Lazy, leave).await
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        let file = self.place.file().map(Path::to_path_buf);
        let mut findings = self.read(move |conn| examine::examine(conn, file.as_deref())).await?;
        findings.push(self.write(|turn| examine::synchronous(turn.conn)).await?);
        Ok(findings)
    }

    async fn close(&self) {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.readers.close().await;
        let writer = self.writer.clone();
        // Waits for the last commit; a panic there has been told to whoever waited for it.
        let _ = tokio::task::spawn_blocking(move || writer.close()).await;
    }
}
