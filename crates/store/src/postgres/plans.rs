//! Plans for dead letters: kept, applied and undone a batch a transaction.
//!
//! Whoever applies or undoes a plan locks its row first, so that two never have the same letters; then the letters of
//! the batch that are as they should be, in the order of their ids; then what the act locks. A batch whose answer was
//! lost may be sent again: the plan knows how far it has come.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use tidemill_core::dead::Triage;
use tidemill_core::dead::plan::{Act, KEPT_DAYS, Stage, fate};
use tidemill_core::{JobId, PlanId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::plan::{
    EXAMPLES_MAX, Example, GROUPS_MAX, NewPlan, PlanStep, PlanView, Planned, Plans, groups, note,
    unreadable, why_replayed,
};
use crate::postgres::batch::delay_us;
use crate::postgres::cancel::{Fate, Search};
use crate::postgres::connect::{Conn, Db};
use crate::postgres::dead::{NOTE, REPLAY, Wanted};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::postgres::sweep::PURGE;
use crate::postgres::{Postgres, Shared, lines};
use crate::wake::Hint;

const LETTERS_ADD: Statement = sql!(
    "insert_plan_letters",
    UUID_ARRAY,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    INT2,
    TEXT,
    TIMESTAMPTZ,
    TIMESTAMPTZ,
    TEXT,
    TEXT_ARRAY,
    TEXT,
    BOOL,
    UUID,
    BOOL,
    INT8,
);
const GROUPS: Statement = sql!("select_plan_groups", UUID, INT8, INT8);
const ADD: Statement =
    sql!("insert_plan", TIMESTAMPTZ, UUID, TEXT, TEXT, TEXT, TEXT, TEXT, INT8, INT8, INT8);
const FIND: Statement = sql!("select_plan", UUID);
const LIST: Statement = sql!("select_plans", UUID, INT8);
const LOCK: Statement = sql!("lock_plan", TIMESTAMPTZ, UUID);
const LETTERS: Statement = sql!("select_plan_letters", UUID, UUID, INT8);
const DONE: Statement = sql!("select_plan_done", UUID, UUID, INT8, INT2, BOOL, INT2);
const MARK: Statement = sql!("mark_plan_letters", UUID, UUID_ARRAY, UUID_ARRAY, INT2, INT2);
const UPDATE: Statement =
    sql!("update_plan", TIMESTAMPTZ, UUID, INT2, UUID, INT8, INT8, INT8, INT8, INT8);
const RESTORE: Statement =
    sql!("restore_dead", TIMESTAMPTZ, UUID, UUID_ARRAY, BOOL, BOOL, INT2, TEXT, TEXT);
const UNSTARTED: Statement = sql!("select_unstarted", UUID_ARRAY);
const LETTERS_FORGET: Statement = sql!("delete_plan_letters", TIMESTAMPTZ, INT8, INT8);
const FORGET: Statement = sql!("delete_plans", TIMESTAMPTZ, INT8);

/// So many letters of old plans are forgotten in one turn.
const FORGET_ROWS: i64 = 2000;

#[async_trait]
impl Plans for Postgres {
    async fn add_plan(&self, new: NewPlan) -> Result<Planned> {
        let (db, mut tries) = (&self.shared.db, Tries::resend());
        loop {
            match add_once(db, &new).await {
                Ok(planned) => return Ok(planned),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }

    async fn plan(&self, id: PlanId) -> Result<Option<PlanView>> {
        let rows = self.shared.db.read(&FIND, &[&id.0]).await?;
        rows.first().map(view).transpose()
    }

    async fn plans(&self, before: Option<PlanId>, limit: usize) -> Result<Vec<PlanView>> {
        let before = before.map(|id| id.0);
        let rows = self.shared.db.read(&LIST, &[&before, &(limit as i64)]).await?;
        rows.iter().map(view).collect()
    }

    async fn apply_plan(&self, id: PlanId, by: &str, batch: usize) -> Result<PlanStep> {
        let mut tries = Tries::resend();
        loop {
            let mut batch = Batch::new(&self.shared, id, by, batch);
            match batch.run(Way::Apply).await {
                Ok(step) => return Ok(batch.tell(step)),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }

    async fn undo_plan(&self, id: PlanId, by: &str, batch: usize) -> Result<PlanStep> {
        let mut tries = Tries::resend();
        loop {
            let mut batch = Batch::new(&self.shared, id, by, batch);
            match batch.run(Way::Undo).await {
                Ok(step) => return Ok(batch.tell(step)),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }

    async fn forget_plans(&self, plans_max: usize) -> Result<bool> {
        // Sent again it forgets more of the same, so it may be sent as a read is.
        let (db, max) = (&self.shared.db, plans_max as i64);
        let rows = db.read(&LETTERS_FORGET, &[&db.manual_now(), &max, &FORGET_ROWS]).await?;
        db.read(&FORGET, &[&db.manual_now(), &max]).await?;
        Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) == FORGET_ROWS))
    }
}

async fn add_once(db: &Db, new: &NewPlan) -> Result<Planned, Fault> {
    let conn = db.begin().await?;
    let planned = add(&conn, db.manual_now(), new).await;
    if matches!(planned, Ok(Planned::TooLarge)) {
        conn.rollback().await?;
        return planned;
    }
    conn.end(planned).await
}

async fn add(conn: &Conn<'_>, now: Option<At>, new: &NewPlan) -> Result<Planned, Fault> {
    let id = new.id.0;
    let wanted = Wanted::of(&new.filter);
    let is_delete = new.act == Act::Delete;
    let limit = new.letters_max as i64 + 1;
    let mut params = wanted.params();
    params.extend::<[Param<'_>; 3]>([&id, &is_delete, &limit]);
    if conn.query(&FIND, &[&id]).await?.is_empty() {
        let rows = conn.query(&LETTERS_ADD, &params).await?;
        let letters: i64 = rows.first().map_or(0, |row| row.get(0));
        if letters == limit {
            return Ok(Planned::TooLarge);
        }
        let rows = (EXAMPLES_MAX as i64, (GROUPS_MAX * EXAMPLES_MAX) as i64);
        let rows = conn.query(&GROUPS, &[&id, &rows.0, &rows.1]).await?;
        let texts = [
            serde_json::json!(new.act).to_string(),
            serde_json::json!(new.filter).to_string(),
            serde_json::json!(groups(rows.iter().map(example))).to_string(),
        ];
        let within = delay_us(new.apply_within);
        let kept = within.saturating_add(delay_us(new.kept));
        let columns: [Param<'_>; 10] = [
            &now, &id, &texts[0], &texts[1], &texts[2], &new.by, &new.why, &letters, &within, &kept,
        ];
        conn.query(&ADD, &columns).await?;
    }
    let rows = conn.query(&FIND, &[&id]).await?;
    let made = rows.first().ok_or_else(|| Fault::Refused(unreadable(&"it is not there")))?;
    Ok(Planned::Made(Box::new(view(made).map_err(Fault::Refused)?)))
}

fn example(row: &Row) -> Example {
    Example {
        fingerprint: row.get(0),
        kind: row.get(1),
        class: row.get(2),
        error: row.get(3),
        count: row.get::<_, i64>(4) as u64,
        id: JobId(row.get(5)),
    }
}

fn view(row: &Row) -> Result<PlanView> {
    let act: Act = serde_json::from_str(row.get(2)).map_err(|error| unreadable(&error))?;
    let time = |column: usize| row.get::<_, Option<At>>(column).map(|at| at.0);
    let count = |column: usize| row.get::<_, i64>(column) as u64;
    Ok(PlanView {
        id: PlanId(row.get(0)),
        stage: Stage::of_number(row.get(1)),
        act,
        undoable: act.is_undoable(),
        filter: serde_json::from_str(row.get(3)).map_err(|error| unreadable(&error))?,
        groups: serde_json::from_str(row.get(4)).map_err(|error| unreadable(&error))?,
        by: row.get(5),
        why: row.get(6),
        letters: count(7),
        made_at: row.get::<_, At>(8).0,
        expires_at: row.get::<_, At>(9).0,
        applied_at: time(10),
        undone_at: time(11),
        done: count(12),
        passed: count(13),
        undone: count(14),
        stayed: count(15),
    })
}

/// Which way a batch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Apply,
    Undo,
}

/// One batch of a plan, and who is to hear of it.
struct Batch<'a> {
    shared: &'a Shared,
    plan: PlanId,
    by: &'a str,
    size: usize,
    queues: BTreeSet<String>,
    flows: bool,
    buried: Option<Search>,
}

impl<'a> Batch<'a> {
    fn new(shared: &'a Shared, plan: PlanId, by: &'a str, size: usize) -> Self {
        let queues = BTreeSet::new();
        Self { shared, plan, by, size, queues, flows: false, buried: None }
    }

    /// Tells those who wait for it what was committed.
    fn tell(self, step: PlanStep) -> PlanStep {
        if self.flows {
            self.shared.hint(Hint::Flows);
        }
        for queue in self.queues {
            self.shared.hint(Hint::Ready { queue });
        }
        if let Some(buried) = &self.buried {
            buried.tell(self.shared);
        }
        step
    }

    async fn run(&mut self, way: Way) -> Result<PlanStep, Fault> {
        let conn = self.shared.db.begin().await?;
        let went = self.go(&conn, way).await;
        conn.end(went).await
    }

    async fn go(&mut self, conn: &Conn<'_>, way: Way) -> Result<PlanStep, Fault> {
        let now = self.shared.db.manual_now();
        let rows = conn.query(&LOCK, &[&now, &self.plan.0]).await?;
        let Some(row) = rows.first() else { return Ok(PlanStep::Unknown) };
        let plan = view(row).map_err(Fault::Refused)?;
        let (reached, is_over): (Uuid, bool) = (row.get(16), row.get(17));
        match (way, plan.stage) {
            (Way::Apply, Stage::Applied) | (Way::Undo, Stage::Undone) => {
                Ok(PlanStep::Went(Box::new(plan)))
            }
            (Way::Apply, Stage::Made) if is_over => Ok(PlanStep::Expired(plan.expires_at)),
            (Way::Apply, Stage::Made | Stage::Applying) => self.apply(conn, &plan, reached).await,
            (Way::Undo, _) if !plan.undoable => Ok(PlanStep::NotNow(plan.stage)),
            (Way::Undo, Stage::Applying | Stage::Applied) => {
                self.undo(conn, &plan, Uuid::nil()).await
            }
            (Way::Undo, Stage::Undoing) => self.undo(conn, &plan, reached).await,
            (Way::Apply, Stage::Undoing | Stage::Undone) | (Way::Undo, Stage::Made) => {
                Ok(PlanStep::NotNow(plan.stage))
            }
        }
    }

    async fn apply(
        &mut self,
        conn: &Conn<'_>,
        plan: &PlanView,
        reached: Uuid,
    ) -> Result<PlanStep, Fault> {
        let params: [Param<'_>; 3] = [&self.plan.0, &reached, &(self.size as i64)];
        let rows = conn.query(&LETTERS, &params).await?;
        let all: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        let same = rows.iter().filter(|row| row.get(1)).map(|row| row.get(0));
        let done = self.act(conn, plan, same.collect()).await?;
        let fates = (fate::DONE, fate::PASSED);
        conn.query(&MARK, &[&self.plan.0, &all, &done, &fates.0, &fates.1]).await?;
        let stage = if all.len() < self.size { Stage::Applied } else { Stage::Applying };
        let (count, done) = (all.len() as i64, done.len() as i64);
        let reached = all.last().copied().unwrap_or(reached);
        self.step(conn, stage, reached, [done, count - done, 0, 0]).await
    }

    /// Does the act to letters, which are locked; answers to which.
    async fn act(
        &mut self,
        conn: &Conn<'_>,
        plan: &PlanView,
        ids: Vec<Uuid>,
    ) -> Result<Vec<Uuid>, Fault> {
        let now = self.shared.db.manual_now();
        if ids.is_empty() {
            return Ok(ids);
        }
        let text = note(plan.act, &plan.why, plan.id);
        let (triage, archived) = match plan.act {
            Act::Replay => {
                let why = why_replayed(plan);
                let params: [Param<'_>; 5] = [&now, &ids, &self.by, &why, &None::<&str>];
                let rows = conn.query(&REPLAY, &params).await?;
                self.queues.extend(rows.iter().map(|row| row.get::<_, String>(1)));
                self.flows |= rows.iter().any(|row| row.get(2));
                return Ok(rows.iter().map(|row| row.get(0)).collect());
            }
            Act::Triage(to) => (Some(to), None),
            Act::Archive => (None, Some(true)),
            Act::Delete => {
                self.queues.extend(lines::let_pass(conn, now, &ids).await?);
                let rows = conn.query(&PURGE, &[&ids]).await?;
                let gone: Vec<Uuid> = rows.first().map(|row| row.get(1)).unwrap_or_default();
                return Ok(gone);
            }
        };
        if triage == Some(Triage::Abandoned) || archived == Some(true) {
            self.queues.extend(lines::let_pass(conn, now, &ids).await?);
        }
        let triage = triage.map(Triage::number);
        conn.query(&NOTE, &[&now, &ids, &self.by, &text, &triage, &archived]).await?;
        Ok(ids)
    }

    async fn undo(
        &mut self,
        conn: &Conn<'_>,
        plan: &PlanView,
        reached: Uuid,
    ) -> Result<PlanStep, Fault> {
        let (triage, archived, redrives) = match plan.act {
            Act::Triage(to) => (Some(to.number()), None, 0_i16),
            Act::Archive | Act::Delete => (None, Some(true), 0),
            Act::Replay => (Some(Triage::Retrying.number()), None, 1),
        };
        let size = self.size as i64;
        let params: [Param<'_>; 6] = [&self.plan.0, &reached, &size, &triage, &archived, &redrives];
        let rows = conn.query(&DONE, &params).await?;
        let all: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        let same: Vec<&Row> = rows.iter().filter(|row| row.get(1)).collect();
        let done: Vec<Uuid> = if plan.act == Act::Replay {
            self.bury(conn, &same).await?
        } else {
            same.iter().map(|row| row.get(0)).collect()
        };
        let now = self.shared.db.manual_now();
        let (of_triage, aside) = (triage.is_some(), archived.is_some());
        let text = format!("undone (plan {})", self.plan);
        let params: [Param<'_>; 8] =
            [&now, &self.plan.0, &done, &of_triage, &aside, &redrives, &self.by, &text];
        conn.query(&RESTORE, &params).await?;
        let fates = (fate::UNDONE, fate::STAYS);
        conn.query(&MARK, &[&self.plan.0, &all, &done, &fates.0, &fates.1]).await?;
        let stage = if all.len() < self.size { Stage::Undone } else { Stage::Undoing };
        let (count, done) = (all.len() as i64, done.len() as i64);
        let reached = all.last().copied().unwrap_or(reached);
        self.step(conn, stage, reached, [0, 0, done, count - done]).await
    }

    /// Lets replayed jobs that wait and have not started be dead again; their letters stand. Answers which.
    async fn bury(&mut self, conn: &Conn<'_>, letters: &[&Row]) -> Result<Vec<Uuid>, Fault> {
        let ids: Vec<Uuid> = letters.iter().map(|row| row.get(0)).collect();
        let rows = conn.query(&UNSTARTED, &[&ids]).await?;
        let unstarted: BTreeSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        let now = self.shared.db.manual_now();
        let unstarted: Vec<Uuid> = unstarted.into_iter().collect();
        let mut found = Search::lock(conn, now, &unstarted).await?;
        // A parent would hear of it.
        found.retain(|_, (body, _)| body.parent.is_none());
        let fate = |row: &&Row| {
            (row.get(0), Fate { attempt: row.get(2), error: row.get(3), failure: None })
        };
        let fates = letters.iter().map(fate).filter(|(id, _)| found.contains_key(id)).collect();
        let search = Search::bury(conn, now, &found, fates).await?;
        let buried = search.buried().collect();
        self.buried = Some(search);
        Ok(buried)
    }

    /// Notes how far the plan has come; answers it.
    async fn step(
        &self,
        conn: &Conn<'_>,
        stage: Stage,
        reached: Uuid,
        [done, passed, undone, stayed]: [i64; 4],
    ) -> Result<PlanStep, Fault> {
        // What begins to be undone begins with its first letter.
        let is_over = matches!(stage, Stage::Applied | Stage::Undone);
        let reached = if is_over { Uuid::nil() } else { reached };
        let kept = delay_us(Duration::from_hours(24 * u64::from(KEPT_DAYS)));
        let (now, number) = (self.shared.db.manual_now(), stage.number());
        let params: [Param<'_>; 9] =
            [&now, &self.plan.0, &number, &reached, &done, &passed, &undone, &stayed, &kept];
        conn.query(&UPDATE, &params).await?;
        let rows = conn.query(&FIND, &[&self.plan.0]).await?;
        let found = rows.first().map(view).transpose().map_err(Fault::Refused)?;
        Ok(found.map_or(PlanStep::Unknown, |view| PlanStep::Went(Box::new(view))))
    }
}
