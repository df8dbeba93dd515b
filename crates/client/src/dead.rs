//! Dead letters: looked at, noted, replayed; what is planned for many; and rules that replay by themselves.

mod plans;
mod rules;

use std::cmp::Reverse;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::store::{DeadGroup, DeadLetter};
use tidemill::{
    By, DeadFilter, DeadPlace, JobId, ReplayPace, ReplayReport, Replaying, State, Timestamp, Triage,
};
use tidemill_core::cursor;

use crate::error::{Error, Result};
use crate::http::{Client, PAGE_MAX, Raw, path, raw};

/// So many ids stand in one request: in a query they have 39 KB then, of the 64 that a head may have.
const IDS_MAX: usize = 1000;

/// The dead letters of a server; see [`Client::dead`].
#[derive(Debug, Clone, Copy)]
pub struct Dead<'a>(&'a Client);

#[derive(Serialize)]
struct Asked<'a> {
    ids: Option<String>,
    kind: Option<&'a str>,
    queue: Option<&'a str>,
    tenant: Option<&'a str>,
    fingerprint: Option<&'a str>,
    triage: Option<Triage>,
    tag: Option<&'a str>,
    died_from: Option<Timestamp>,
    died_until: Option<Timestamp>,
    error_contains: Option<&'a str>,
    payload_field: Option<String>,
    archived: bool,
    cursor: Option<String>,
    limit: Option<usize>,
}

impl<'a> Asked<'a> {
    fn new(filter: &'a DeadFilter) -> Self {
        Self::of(filter, &filter.ids)
    }

    /// The same for some of the ids of a filter that has too many for one request.
    fn of(filter: &'a DeadFilter, ids: &[JobId]) -> Self {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let field = filter.payload_field.as_ref();
        Self {
            ids: (!ids.is_empty()).then(|| ids.join(",")),
            kind: filter.kind.as_deref(),
            queue: filter.queue.as_deref(),
            tenant: filter.tenant.as_deref(),
            fingerprint: filter.fingerprint.as_deref(),
            triage: filter.triage,
            tag: filter.tag.as_deref(),
            died_from: filter.died_from,
            died_until: filter.died_until,
            error_contains: filter.error_contains.as_deref(),
            payload_field: field.map(|(path, value)| format!("{path}={value}")),
            archived: filter.archived,
            cursor: None,
            limit: None,
        }
    }
}

#[derive(Deserialize)]
struct Page {
    letters: Vec<DeadLetter>,
}

#[derive(Serialize)]
struct Remark<'a> {
    ids: &'a [JobId],
    text: &'a str,
}

#[derive(Deserialize)]
struct Noted {
    letters: u64,
}

#[derive(Serialize)]
struct Wish<'a> {
    ids: &'a [JobId],
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Raw>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

#[derive(Deserialize)]
struct Sent {
    replayed: Vec<JobId>,
}

impl Client {
    /// Jobs that gave up.
    pub fn dead(&self) -> Dead<'_> {
        Dead(self)
    }
}

impl Dead<'_> {
    /// Dead letters, latest death first, at most `limit`; those that stand behind a place, if one is given.
    pub async fn list(
        &self,
        filter: &DeadFilter,
        before: Option<DeadPlace>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        if filter.ids.len() <= IDS_MAX {
            return self.list_of(filter, &filter.ids, before, limit).await;
        }
        let mut letters = Vec::new();
        for ids in filter.ids.chunks(IDS_MAX) {
            letters.extend(self.list_of(filter, ids, before, limit).await?);
        }
        letters.sort_by_key(|letter| Reverse((letter.place().died_at, letter.id)));
        letters.dedup_by_key(|letter| letter.id);
        letters.truncate(limit);
        Ok(letters)
    }

    /// The same for these ids of the filter, which fit into one request.
    async fn list_of(
        &self,
        filter: &DeadFilter,
        ids: &[JobId],
        before: Option<DeadPlace>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let (mut letters, mut place) = (Vec::new(), before);
        while letters.len() < limit {
            let rows = (limit - letters.len()).min(PAGE_MAX);
            let cursor = place.map(|place| cursor::write("dead", &place.to_string()));
            let asked = Asked { cursor, limit: Some(rows), ..Asked::of(filter, ids) };
            let page = self.0.get::<Page>(&path(["dead"]), &asked).await?.letters;
            let is_last = page.len() < rows;
            letters.extend(page);
            place = letters.last().map(DeadLetter::place);
            if is_last {
                break;
            }
        }
        Ok(letters)
    }

    /// How many there are of each fingerprint, most numerous first.
    pub async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>> {
        self.0.get(&path(["dead", "groups"]), &Asked::new(filter)).await
    }

    /// Some of them, drawn at random, at most a thousand.
    pub async fn sample(&self, filter: &DeadFilter, n: usize) -> Result<Vec<DeadLetter>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        let asked = Asked { limit: Some(n.min(PAGE_MAX)), ..Asked::new(filter) };
        self.0.get(&path(["dead", "sample"]), &asked).await
    }

    /// Notes something on dead letters. Answers how many there were. Who did it is whose credential it is, here and
    /// below, whatever `by` says.
    pub async fn note(&self, ids: &[JobId], by: &str, text: &str) -> Result<u64> {
        let _ = by;
        let mut letters = 0;
        for ids in ids.chunks(IDS_MAX) {
            let noted: Noted = self.0.post(&path(["dead", "notes"]), &Remark { ids, text }).await?;
            letters += noted.letters;
        }
        Ok(letters)
    }

    /// Replays one dead letter, with another payload if given. `false` when it was not dead.
    pub async fn replay_one<'b>(
        &self,
        id: JobId,
        by: impl Into<By<'b>>,
        payload: Option<&str>,
    ) -> Result<bool> {
        let payload = payload.map(raw).transpose()?;
        let wish = Wish { ids: &[id], payload, why: by.into().why };
        let sent: Sent = self.0.post(&path(["dead", "replay"]), &wish).await?;
        Ok(!sent.replayed.is_empty())
    }

    /// Replays these at once; answers those that were dead.
    pub async fn replay_these<'b>(
        &self,
        ids: &[JobId],
        by: impl Into<By<'b>>,
    ) -> Result<Vec<JobId>> {
        let why = by.into().why;
        let mut went = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_MAX) {
            let wish = Wish { ids, payload: None, why };
            let sent: Sent = self.0.post(&path(["dead", "replay"]), &wish).await?;
            went.extend(sent.replayed);
        }
        Ok(went)
    }

    /// Replays all that match, at a pace. `progress` is told how many went and how many there are.
    pub async fn replay<'b>(
        &self,
        filter: &DeadFilter,
        by: impl Into<By<'b>>,
        pace: &ReplayPace,
        progress: impl FnMut(u64, u64),
    ) -> Result<ReplayReport> {
        tidemill::replay(self, filter, by.into(), pace, progress).await
    }
}

impl Replaying for Dead<'_> {
    type Error = Error;

    async fn letters(
        &self,
        filter: &DeadFilter,
        before: Option<DeadPlace>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        self.list(filter, before, limit).await
    }

    async fn send(&self, ids: &[JobId], by: By<'_>) -> Result<Vec<JobId>> {
        self.replay_these(ids, by).await
    }

    async fn ended(&self, id: JobId, wait: Duration) -> Result<Option<State>> {
        match self.0.wait(id, wait).await {
            Ok(view) => Ok(Some(view.state)),
            Err(error) if error.code() == "wait_timeout" => Ok(None),
            Err(error) => Err(error),
        }
    }
}
