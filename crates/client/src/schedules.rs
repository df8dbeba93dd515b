//! Schedules: set, looked at, paused, run now, and slots of the past.

use http::Method;
use http::header::IF_MATCH;
use serde::{Deserialize, Serialize};
use tidemill::store::schedule::Fired;
use tidemill::store::{FireView, ScheduleView};
use tidemill::{
    Backfill, ComingSlot, Declaration, Declared, PastSlot, Ran, Schedule, ScheduleWish, Timestamp,
};
use tidemill_core::Clock;

use crate::error::Result;
use crate::http::{Client, PAGE_MAX, Path, Request, path};
use crate::jobs::limits;

/// The schedules of a server; see [`Client::schedules`].
#[derive(Debug, Clone, Copy)]
pub struct Schedules<'a>(&'a Client);

#[derive(Serialize)]
struct Asked<'a> {
    owner: Option<&'a str>,
    cursor: Option<String>,
    limit: usize,
}

#[derive(Deserialize)]
struct Page {
    schedules: Vec<ScheduleView>,
    next: Option<String>,
}

#[derive(Serialize)]
struct Fill {
    from: Timestamp,
    to: Timestamp,
    again: bool,
    dry_run: bool,
}

#[derive(Deserialize)]
struct Filled {
    fired: Vec<Fired>,
    slots: Vec<PastSlot>,
}

impl Client {
    /// Rules of time, and the jobs they make.
    pub fn schedules(&self) -> Schedules<'_> {
        Schedules(self)
    }
}

impl Schedules<'_> {
    /// All schedules, or those of this owner, by name.
    pub async fn list(&self, owner: Option<&str>) -> Result<Vec<ScheduleView>> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let asked = Asked { owner, cursor, limit: PAGE_MAX };
            let page: Page = self.0.get(&path(["schedules"]), &asked).await?;
            all.extend(page.schedules);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// The schedule of this name.
    pub async fn get(&self, name: &str) -> Result<ScheduleView> {
        self.0.get(&path(["schedules", name]), &()).await
    }

    /// Makes a schedule, or replaces it.
    pub async fn set(&self, schedule: Schedule) -> Result<ScheduleView> {
        self.set_of(schedule, None).await
    }

    /// The same, if the version is still this one.
    pub async fn set_of(&self, schedule: Schedule, version: Option<i64>) -> Result<ScheduleView> {
        let (name, wish) = wish(schedule)?;
        let request = self.0.request(Method::PUT, &path(["schedules", &name])).json(&wish);
        self.0.value(of_version(request, version)).await
    }

    /// Makes the schedules of this owner exactly these: new ones are made, others changed, those not named any more
    /// deleted, all or none. Schedules of other owners are not touched, so a service can call it whenever it starts.
    pub async fn declare(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
    ) -> Result<Declared> {
        self.declared(owner, schedules, false).await
    }

    /// What [`declare`](Self::declare) would do. Checks all of them; changes nothing.
    pub async fn declare_preview(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
    ) -> Result<Declared> {
        self.declared(owner, schedules, true).await
    }

    async fn declared(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
        dry_run: bool,
    ) -> Result<Declared> {
        let own = |schedule: Schedule| wish(schedule.owner(owner));
        let schedules = schedules.into_iter().map(own).collect::<Result<_>>()?;
        let path = path(["owners", owner, "schedules"]);
        let request = self.0.request(Method::PUT, &path);
        self.0.value(request.json(&Declaration { schedules, dry_run })).await
    }

    /// Deletes a schedule, and its history. Jobs it has made stay.
    pub async fn delete(&self, name: &str, owner: &str) -> Result<()> {
        self.delete_of(name, owner, None).await
    }

    /// The same, if the version is still this one.
    pub async fn delete_of(&self, name: &str, owner: &str, version: Option<i64>) -> Result<()> {
        let request = self.0.request(Method::DELETE, &path(["schedules", name]));
        self.0.told(of_version(request.query(&[("owner", owner)]), version)).await
    }

    /// Lets a schedule rest.
    pub async fn pause(&self, name: &str) -> Result<()> {
        self.0.told(self.0.request(Method::POST, &of(name, "pause"))).await
    }

    /// Ends a pause. What would have fired meanwhile is not caught up.
    pub async fn resume(&self, name: &str) -> Result<()> {
        self.0.told(self.0.request(Method::POST, &of(name, "resume"))).await
    }

    /// What became of its slots, latest first.
    pub async fn history(&self, name: &str, limit: usize) -> Result<Vec<FireView>> {
        let query = [("limit", limit.clamp(1, PAGE_MAX))];
        let mut fires: Vec<FireView> = self.0.get(&of(name, "history"), &query).await?;
        fires.truncate(limit);
        Ok(fires)
    }

    /// The next `n` slots, at most 1,000.
    pub async fn preview(&self, name: &str, n: usize) -> Result<Vec<ComingSlot>> {
        let query = [("slots", n.clamp(1, PAGE_MAX))];
        let mut slots: Vec<ComingSlot> = self.0.get(&of(name, "preview"), &query).await?;
        slots.truncate(n);
        Ok(slots)
    }

    /// The next `n` slots of a schedule that is only described.
    pub async fn preview_of(&self, schedule: Schedule, n: usize) -> Result<Vec<ComingSlot>> {
        let (name, wish) = wish(schedule)?;
        let request = self.0.request(Method::POST, &path(["schedule-preview"])).json(&wish);
        let query = [("slots", n.clamp(1, PAGE_MAX).to_string()), ("name", name)];
        let mut slots: Vec<ComingSlot> = self.0.value(request.query(&query)).await?;
        slots.truncate(n);
        Ok(slots)
    }

    /// Makes its job now, beside its slots.
    pub async fn run_now(&self, name: &str) -> Result<Ran> {
        self.0.ask(Method::POST, &of(name, "run")).await
    }

    /// The slots of a range of the past, and which of them a backfill would fire.
    pub async fn backfill_preview(&self, name: &str, range: Backfill) -> Result<Vec<PastSlot>> {
        Ok(self.fill(name, range, true).await?.slots)
    }

    /// Fires the slots of a range of the past, all or none.
    pub async fn backfill(&self, name: &str, range: Backfill) -> Result<Vec<Fired>> {
        Ok(self.fill(name, range, false).await?.fired)
    }

    async fn fill(&self, name: &str, range: Backfill, dry_run: bool) -> Result<Filled> {
        let Backfill { from, to, again } = range;
        self.0.post(&of(name, "backfill"), &Fill { from, to, again, dry_run }).await
    }
}

fn of(name: &str, what: &str) -> Path {
    path(["schedules", name, what])
}

fn wish(schedule: Schedule) -> Result<(String, ScheduleWish)> {
    let name = schedule.name().to_owned();
    Ok((name, schedule.wish(&limits(), Clock::System.now())?))
}

fn of_version(request: Request, version: Option<i64>) -> Request {
    match version {
        Some(version) => request.header(IF_MATCH, &format!("\"{version}\"")),
        None => request,
    }
}
