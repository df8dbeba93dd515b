//! Low-water marks: where in each lane a claim begins to look.
//!
//! Rows that were claimed leave dead index entries at the head of the queue until vacuum may remove
//! them. Walking over 200,000 of them costs a claim 60 ms; beginning at the mark, 3 ms. A mark is only
//! a hint: a job is due when its transaction begins, and seen when that ends. So a mark stays as far behind what was
//! found as an ordinary enqueue takes, and for those that take longer a claim looks from
//! the head once a second, and also when it would come back short, but then for at most a twentieth
//! of the time: an idle queue costs little, however many dead rows it has.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tidemill_core::share::Served;

use crate::request::{ClaimRequest, ClaimedJob, Lane, Share};

/// Beyond this number of lanes all marks are forgotten: they come back with the next claims.
const LANES_MAX: usize = 10_000;
/// How long an enqueue is under way at most, as a rule. Without it one job in 150 on an idle queue was passed by a
/// claim that looked while it was written, and then waited for a look from the head, 24 ms and more.
const FLIGHT: SignedDuration = SignedDuration::from_millis(20);
const HEAD_EVERY: Duration = Duration::from_secs(1);
const HEAD_SHARE: u32 = 20;
const SHEAF_IDS_GUESS: f64 = 10.0;
/// What taking one job costs, on a busy machine.
const JOB_COST: Duration = Duration::from_micros(30);

/// One asker's view of a lane: who knows other kinds finds other heads.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    lane: Lane,
    kinds: Option<u64>,
}

#[derive(Clone)]
struct Mark {
    from: Option<Timestamp>,
    /// Who was served last, if anybody was.
    served: Option<Served>,
    head_seen: Instant,
    head_cost: Duration,
    sheaf_ids: Option<f64>,
}

impl Mark {
    fn new(head_cost: Duration) -> Self {
        let (from, served, sheaf_ids) = (None, None, None);
        Self { from, served, head_seen: Instant::now(), head_cost, sheaf_ids }
    }
}

/// The marks of this process.
#[derive(Default)]
pub(crate) struct Marks(Mutex<HashMap<Key, Mark>>);

/// What to ask for.
pub(crate) struct Plan {
    keys: Vec<Key>,
    /// Per lane, where to begin; `None` is its head.
    pub from: Vec<Option<Timestamp>>,
    /// Per lane, who was served last; `None` begins with any.
    pub served: Vec<Option<Served>>,
    /// How many sheaves are likely to be enough.
    pub sheaves: usize,
}

/// What a claim by a plan found.
pub(crate) struct Found {
    /// Per lane, the due time of the first sheaf.
    pub heads: Vec<Option<Timestamp>>,
    /// Per lane, whether something was due there, taken or not.
    pub is_due: Vec<bool>,
    /// How many sheaves, with how many ids.
    pub sheaves: usize,
    pub ids: usize,
    pub took: Duration,
    pub now: Timestamp,
}

impl Found {
    /// About how long the way to the first sheaf was, the work on the jobs left aside.
    fn walk(&self) -> Duration {
        self.took.saturating_sub(JOB_COST * self.ids as u32)
    }
}

impl Plan {
    /// Per lane, behind which tenant to go on.
    pub fn behinds(&self) -> Vec<Option<String>> {
        self.served.iter().map(|served| served.as_ref().map(Served::behind)).collect()
    }

    /// Per lane, whose turn lasts, and for how many jobs more.
    pub fn turns(&self) -> (Vec<Option<&str>>, Vec<i32>) {
        let turns = self.served.iter().map(|served| match served.as_ref().map(Served::turn) {
            Some((tenant, left)) => (Some(tenant), left as i32),
            None => (None, 0),
        });
        turns.unzip()
    }

    /// Whose turn it is after a claim that went on behind these, and took these jobs. What was passed by or drawn by
    /// chance it tells itself.
    pub fn serve(&mut self, share: &Share, told: Vec<Option<String>>, jobs: &[ClaimedJob]) {
        let behinds = self.behinds();
        let lanes = self.keys.iter().zip(&mut self.served);
        for (((key, served), told), behind) in lanes.zip(told).zip(behinds) {
            let is_told = told != behind;
            if is_told {
                *served = told.clone().map(Served::whole);
            }
            let is_here = |one: &&ClaimedJob| {
                one.job.queue == key.lane.queue && one.job.priority == key.lane.priority
            };
            // Whoever was passed by is behind.
            let (false, Some(served)) = (is_told && behind.is_some(), served) else { continue };
            for one in jobs.iter().filter(is_here) {
                let tenant = one.job.tenant.as_deref().unwrap_or_default();
                served.took(tenant, share.of(&key.lane.queue, tenant), 1);
            }
        }
    }

    /// The same lanes from their heads.
    pub fn begin_at_heads(&mut self) {
        self.from.fill(None);
    }
}

impl Marks {
    /// Where to look for this wish.
    pub fn plan(&self, ask: &ClaimRequest) -> Plan {
        let kinds = ask.kinds.as_ref().map(|kinds| {
            let mut hasher = DefaultHasher::new();
            kinds.hash(&mut hasher);
            hasher.finish()
        });
        let keys: Vec<_> = ask.lanes.iter().map(|lane| Key { lane: lane.clone(), kinds }).collect();
        let marks = self.lock();
        let known: Vec<_> = keys.iter().map(|key| marks.get(key)).collect();
        let overdue = known.iter().flatten().any(|mark| mark.head_seen.elapsed() >= HEAD_EVERY);
        let from = known.iter().map(|mark| mark.filter(|_| !overdue).and_then(|mark| mark.from));
        let ids =
            known.iter().flatten().filter_map(|mark| mark.sheaf_ids).fold(f64::INFINITY, f64::min);
        let sheaves = sheaves(ask.jobs_max, if ids.is_finite() { ids } else { SHEAF_IDS_GUESS });
        let from = from.collect();
        let served = known.iter().map(|mark| mark.and_then(|mark| mark.served.clone())).collect();
        Plan { keys, from, served, sheaves }
    }

    /// How long until this plan's lanes may be looked at from their heads.
    pub fn heads_in(&self, plan: &Plan) -> Duration {
        let marks = self.lock();
        let waits = plan.keys.iter().filter_map(|key| marks.get(key)).map(|mark| {
            (mark.head_cost * HEAD_SHARE).min(HEAD_EVERY).saturating_sub(mark.head_seen.elapsed())
        });
        waits.max().unwrap_or_default()
    }

    /// Behind which tenant of a lane it is the next one's turn in this process, whatever kinds it asks for.
    pub fn served(&self, lane: &Lane) -> String {
        let marks = self.lock();
        let of_lane = marks.iter().filter(|(key, _)| key.lane == *lane);
        of_lane
            .filter_map(|(_, mark)| Some(mark.served.as_ref()?.behind()))
            .max()
            .unwrap_or_default()
    }

    /// Remembers whom a claim by this plan served last.
    pub fn serve(&self, plan: &Plan) {
        let mut marks = self.lock();
        for (key, served) in plan.keys.iter().zip(&plan.served) {
            match marks.get_mut(key) {
                Some(mark) => mark.served.clone_from(served),
                None if served.is_none() => {}
                None => {
                    let mark = Mark { served: served.clone(), ..Mark::new(Duration::ZERO) };
                    marks.insert(key.clone(), mark);
                }
            }
        }
    }

    /// Remembers what a claim by this plan found.
    pub fn learn(&self, plan: &Plan, found: &Found) {
        let mut marks = self.lock();
        if marks.len() > LANES_MAX {
            marks.clear();
        }
        let lanes = plan.keys.iter().zip(&plan.from).zip(&found.heads).zip(&found.is_due);
        for (((key, from), head), is_due) in lanes {
            let mark = marks.entry(key.clone()).or_insert_with(|| Mark::new(found.walk()));
            if from.is_none() {
                // Seen, whatever came of it: a lane that a full claim did not get to would otherwise
                // be overdue for ever, and every claim would look at all lanes from their heads.
                (mark.head_seen, mark.head_cost) = (Instant::now(), found.walk());
                if head.is_some() || !is_due {
                    mark.from = behind(head.unwrap_or(found.now));
                }
            } else if let Some(head) = head {
                mark.from = behind(*head);
            }
            if head.is_some() {
                let ids = (found.ids as f64 / found.sheaves.max(1) as f64).max(1.0);
                mark.sheaf_ids = Some(mark.sheaf_ids.map_or(ids, |known| known * 0.6 + ids * 0.4));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where what was due then, and is still being written, will be seen.
fn behind(seen: Timestamp) -> Option<Timestamp> {
    seen.checked_sub(FLIGHT).ok()
}

/// How many sheaves to take hold of. One too many keeps others from it for a moment; one too few
/// costs a second statement. The first of them is often partly taken: one more, unless few are wanted.
fn sheaves(jobs_max: usize, ids: f64) -> usize {
    let enough = (jobs_max as f64 / ids).ceil() as usize;
    let spare = usize::from(jobs_max as f64 * 4.0 >= ids);
    (enough + spare).min(jobs_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Share;
    use tidemill_core::{Priority, WorkerId};

    fn ask() -> ClaimRequest {
        let lanes = vec![Lane { queue: "q".into(), priority: Priority::Normal }];
        let share = Share::default();
        ClaimRequest {
            worker: WorkerId::new(),
            lanes,
            share,
            limits: std::sync::Arc::default(),
            edition: None,
            kinds: None,
            jobs_max: 100,
            stand: None,
        }
    }

    fn found(head: Option<Timestamp>, took: Duration) -> Found {
        let now = Timestamp::UNIX_EPOCH;
        let is_due = vec![head.is_some()];
        Found { heads: vec![head], is_due, sheaves: 1, ids: 1, took, now }
    }

    #[test]
    fn a_claim_begins_where_the_last_one_found_something() {
        let (marks, head) = (Marks::default(), Timestamp::UNIX_EPOCH);
        let plan = marks.plan(&ask());
        assert_eq!(plan.from, [None]);
        marks.learn(&plan, &found(Some(head), Duration::ZERO));
        let plan = marks.plan(&ask());
        assert_eq!(plan.from, [Some(head - FLIGHT)]);
        assert_eq!(marks.heads_in(&plan), Duration::ZERO, "a cheap look is free");
    }

    #[test]
    fn what_is_being_written_while_nothing_is_found_is_not_passed_by() {
        let (marks, now) = (Marks::default(), Timestamp::UNIX_EPOCH);
        marks.learn(&marks.plan(&ask()), &found(None, Duration::from_millis(2)));
        let plan = marks.plan(&ask());
        assert!(plan.from[0].is_some_and(|from| from <= now - FLIGHT), "{:?}", plan.from);
    }

    #[test]
    fn a_lane_that_a_full_claim_did_not_get_to_is_seen_all_the_same() {
        let marks = Marks::default();
        let plan = marks.plan(&ask());
        let mut full = found(None, Duration::from_millis(40));
        full.is_due = vec![true];
        marks.learn(&plan, &full);
        let plan = marks.plan(&ask());
        assert_eq!(plan.from, [None], "its head is not known");
        assert!(marks.heads_in(&plan) > Duration::ZERO, "but it was looked at just now");
    }

    #[test]
    fn a_dear_look_from_the_head_is_taken_rarely() {
        let marks = Marks::default();
        let plan = marks.plan(&ask());
        marks.learn(&plan, &found(None, Duration::from_millis(40)));
        let wait = marks.heads_in(&marks.plan(&ask()));
        assert!(
            wait > Duration::from_millis(400) && wait <= Duration::from_millis(800),
            "{wait:?}"
        );
    }

    #[test]
    fn the_number_of_sheaves_follows_their_size() {
        for (jobs_max, ids, expected) in [
            (500, 100.0, 6),
            (500, 1.0, 500),
            (10, 100.0, 1),
            (30, 100.0, 2),
            (1, 1.0, 1),
            (0, 1.0, 0),
        ] {
            assert_eq!(sheaves(jobs_max, ids), expected, "{jobs_max} {ids}");
        }
    }
}
