//! What runs write beside their journals, in the same transaction: children, answers to mail, what they continue with,
//! and objects.

use tidemill_core::workflow::{ChildEnd, ObjectKey};
use tidemill_core::{Job, JobId, NewJob, Payload, Token, WorkerId};
use uuid::Uuid;

use super::append::write;
use super::family;
use super::mail::child_ends;
use crate::postgres::connect::Conn;
use crate::postgres::error::Fault;
use crate::postgres::settle::FollowUp;
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::{Shared, cancel, settle};
use crate::run::{Append, Renewal, RunWrites};
use crate::wake::Hint;

const ANSWER: Statement = sql!("answer_mail", UUID_ARRAY, INT8_ARRAY, TEXT_ARRAY);
const VALUE: Statement = sql!("set_value", UUID, INT4, TEXT);
const RENEW: Statement = sql!("renew_run", UUID, TEXT, TEXT, INT8_ARRAY);
const KEEP: Statement =
    sql!("upsert_objects", TIMESTAMPTZ, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY);
const FORGET: Statement = sql!("delete_objects", TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY);

/// Why children are called off that nobody waits for.
const UNWANTED: &str = "its parent does not wait for it any more";

/// What others hear of when it is committed.
#[derive(Default)]
pub(crate) struct Beside {
    queues: Vec<String>,
    called_off: Vec<cancel::Search>,
    /// Who has an answer, or mail.
    answered: Vec<JobId>,
    turned_away: Vec<(JobId, ChildEnd)>,
}

impl Beside {
    /// Writes it.
    pub(super) async fn write<'a>(
        shared: &Shared,
        conn: &Conn<'_>,
        runs: impl Iterator<Item = (JobId, &'a RunWrites)> + Clone,
    ) -> Result<Self, Fault> {
        let mut children: Vec<&NewJob> = Vec::new();
        for (run, writes) in runs.clone() {
            children.extend(family::wanted(conn, run, writes).await?);
        }
        let FollowUp { queues, turned_away } = settle::follow_up(shared, conn, &children).await?;
        let mut called_off = Vec::new();
        for id in runs.clone().flat_map(|(_, writes)| &writes.cancel) {
            called_off.push(cancel::cancel_in(shared, conn, &[*id], UNWANTED).await?);
        }
        for (job, writes) in runs.clone() {
            for (number, value) in &writes.values {
                conn.query(&VALUE, &[&job.0, &(*number as i32), &value.as_str()]).await?;
            }
        }
        let answered = answer(conn, runs.clone()).await?;
        for (job, writes) in runs {
            if let Some(Renewal { payload, version, taken }) = &writes.renewal {
                conn.query(&RENEW, &[&job.0, &payload.as_str(), version, taken]).await?;
            }
        }
        Ok(Self { queues, called_off, answered, turned_away })
    }

    /// Tells runs of children that were not started; after what they wait for is written, so that it wakes them.
    /// Answers the queues in which runs are woken.
    pub async fn turn_away(
        &mut self,
        conn: &Conn<'_>,
        now: Option<At>,
    ) -> Result<Vec<String>, Fault> {
        self.answered.extend(self.turned_away.iter().map(|(run, _)| *run));
        child_ends(conn, now, std::mem::take(&mut self.turned_away)).await
    }

    /// Tells those who wait for it what was committed.
    pub fn tell(&self, shared: &Shared) {
        for queue in &self.queues {
            shared.hint(Hint::Ready { queue: queue.clone() });
        }
        for search in &self.called_off {
            search.tell(shared);
        }
        for id in &self.answered {
            shared.hint(Hint::Mail { id: *id });
        }
    }
}

/// Answers mail; answers whose.
async fn answer<'a>(
    conn: &Conn<'_>,
    runs: impl Iterator<Item = (JobId, &'a RunWrites)>,
) -> Result<Vec<JobId>, Fault> {
    let answers = runs.flat_map(|(job, w)| w.answers.iter().map(move |answer| (job, answer)));
    let (jobs, answers): (Vec<JobId>, Vec<&(i64, String)>) = answers.unzip();
    if !jobs.is_empty() {
        let ids: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
        let numbers: Vec<i64> = answers.iter().map(|(number, _)| *number).collect();
        let texts: Vec<&str> = answers.iter().map(|(_, text)| text.as_str()).collect();
        conn.query(&ANSWER, &[&ids, &numbers, &texts]).await?;
    }
    Ok(jobs)
}

/// Writes what runs want written with their settles, whose leases hold.
pub(crate) async fn write_with(
    shared: &Shared,
    conn: &Conn<'_>,
    worker: WorkerId,
    runs: &[(&Job, Token, &RunWrites)],
) -> Result<Beside, Fault> {
    if runs.is_empty() {
        return Ok(Beside::default());
    }
    let items: Vec<Append> = runs
        .iter()
        .map(|(job, token, writes)| Append {
            job: job.id,
            token: *token,
            writes: (*writes).clone(),
        })
        .collect();
    write(conn, &shared.db, worker, &items.iter().collect::<Vec<_>>()).await?;
    keep_objects(shared, conn, runs).await?;
    Beside::write(shared, conn, runs.iter().map(|(job, _, writes)| (job.id, *writes))).await
}

/// Objects and what they are, column by column.
#[derive(Default)]
struct Changed<'a> {
    queues: Vec<&'a str>,
    tenants: Vec<Option<&'a str>>,
    keys: Vec<&'a str>,
    states: Vec<&'a str>,
}

async fn keep_objects(
    shared: &Shared,
    conn: &Conn<'_>,
    runs: &[(&Job, Token, &RunWrites)],
) -> Result<(), Fault> {
    let (mut kept, mut gone) = (Changed::default(), Changed::default());
    for (job, _, writes) in runs {
        let (Some(keep), Some(key)) = (&writes.object, ObjectKey::of(job)) else { continue };
        let state = keep.state().map(Payload::as_str);
        let changed = if state.is_some() { &mut kept } else { &mut gone };
        changed.queues.push(&job.queue);
        changed.tenants.push(key.tenant);
        changed.keys.push(key.key);
        changed.states.extend(state);
    }
    if !kept.keys.is_empty() {
        let Changed { queues, tenants, keys, states } = kept;
        let now = shared.db.manual_now();
        conn.query(&KEEP, &[&now, &queues, &tenants, &keys, &states]).await?;
    }
    if !gone.keys.is_empty() {
        conn.query(&FORGET, &[&gone.queues, &gone.tenants, &gone.keys]).await?;
    }
    Ok(())
}
