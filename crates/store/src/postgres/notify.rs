//! Telling other processes: hints over NOTIFY, on a connection of their own, after the commit.
//!
//! NOTIFY takes a lock of the whole server at commit, so it is never part of a transaction that
//! writes, and what gathers while one is in flight goes with the next. Nobody waits for it, and one
//! that is lost only costs time: whoever polls finds the job.
//!
//! One exception: an enqueue after a silence sends it right behind its own statement, as a transaction
//! of its own on the same connection. The commit is then told without first going back to the client,
//! which a job on an idle queue would wait for. After it there is silence for a millisecond: what comes
//! meanwhile is told together. A hint wakes every process that listens, so a producer in a loop would
//! else wake them all ten thousand times a second.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_core::{JobId, WorkerId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::postgres::connect::{Db, unnamed};
use crate::postgres::statement::{Statement, sql};
use crate::postgres::workers::Reserved;
use crate::wake::Hint;

pub(crate) const NOTIFY: Statement = sql!("notify", TEXT_ARRAY);

/// The silence after a hint.
const SILENCE: Duration = Duration::from_millis(1);
/// Hints in one NOTIFY; more than this many different ones become `Any`.
const HINTS_MAX: usize = 500;
/// Hints looked at for one NOTIFY; most of them are the same.
const GATHERED_MAX: usize = 10_000;

/// Where hints for other processes go.
#[derive(Debug)]
pub(crate) struct Notifier {
    process: String,
    hints: UnboundedSender<Hint>,
    told_at: Arc<ToldAt>,
    last_call: CancellationToken,
}

/// When other processes were last told something.
#[derive(Debug, Default)]
pub(crate) struct ToldAt(Mutex<Option<Instant>>);

impl ToldAt {
    /// Breaks the silence, if it lasted; else answers until when it must.
    fn break_silence(&self) -> Result<(), Instant> {
        let mut at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match at.map(|at| at + SILENCE) {
            Some(until) if until > Instant::now() => Err(until),
            _ => {
                *at = Some(Instant::now());
                Ok(())
            }
        }
    }

    /// Waits for the silence, and breaks it.
    async fn wait(&self) {
        while let Err(until) = self.break_silence() {
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

impl Notifier {
    /// A notifier, and what it is told.
    pub fn new() -> (Self, UnboundedReceiver<Hint>) {
        let (hints, told) = unbounded_channel();
        let process = format!("{:08x}", fastrand::u32(..));
        let (told_at, last_call) = (Arc::default(), CancellationToken::new());
        (Self { process, hints, told_at, last_call }, told)
    }

    /// Whoever sends is to send what it was told, and to end.
    pub fn last_call(&self) -> &CancellationToken {
        &self.last_call
    }

    /// Passes a hint on.
    pub fn tell(&self, hint: Hint) {
        // After close there is nobody to tell.
        let _ = self.hints.send(hint);
    }

    /// The hint in a payload, unless it came from this process.
    pub fn hear(&self, payload: &str) -> Option<Hint> {
        let (process, hint) = payload.split_once(' ')?;
        if process == self.process { None } else { read(hint) }
    }

    /// What tells other processes that these queues may have jobs, to be sent right behind the commit;
    /// nothing, if they were told something just now: then pass it on once it is written.
    pub fn ready_now(&self, queues: &BTreeSet<&str>) -> Option<Vec<String>> {
        if queues.len() > HINTS_MAX || self.told_at.break_silence().is_err() {
            return None;
        }
        Some(queues.iter().map(|queue| format!("{} r:{queue}", self.process)).collect())
    }

    /// When other processes were last told something.
    pub fn told_at(&self) -> Arc<ToldAt> {
        Arc::clone(&self.told_at)
    }

    /// The mark of this process on its payloads.
    pub fn process(&self) -> &str {
        &self.process
    }
}

/// Sends what it is told, to the last.
pub(crate) async fn send(
    db: &Db,
    process: &str,
    told_at: &ToldAt,
    last_call: &CancellationToken,
    mut told: UnboundedReceiver<Hint>,
) {
    let (connection, mut gathered) = (Reserved::default(), Vec::new());
    loop {
        let heard = tokio::select! {
            biased;
            heard = told.recv_many(&mut gathered, GATHERED_MAX) => heard,
            () = last_call.cancelled() => 0,
        };
        if heard == 0 {
            return;
        }
        told_at.wait().await;
        while gathered.len() < GATHERED_MAX
            && let Ok(hint) = told.try_recv()
        {
            gathered.push(hint);
        }
        let hints = bounded(std::mem::take(&mut gathered));
        let payloads: Vec<String> =
            hints.iter().map(|hint| format!("{process} {}", write(hint))).collect();
        let sent = async { unnamed(&*connection.client(db).await?, &NOTIFY, &[&payloads]).await };
        if sent.await.is_err() {
            tracing::debug!("a hint to other processes was lost; they will find out by themselves");
        }
    }
}

/// Each hint once, in order, as many as may go together. What is ephemeral is the first to be given up.
fn bounded(gathered: Vec<Hint>) -> Vec<Hint> {
    let mut seen = HashSet::with_capacity(gathered.len());
    let mut hints: Vec<Hint> =
        gathered.into_iter().filter(|hint| seen.insert(hint.clone())).collect();
    if hints.len() > HINTS_MAX {
        hints.retain(|hint| !matches!(hint, Hint::Ephemeral { .. }));
    }
    if hints.len() > HINTS_MAX { vec![Hint::Any] } else { hints }
}

fn write(hint: &Hint) -> String {
    match hint {
        Hint::Ready { queue } => format!("r:{queue}"),
        Hint::Any => "a:".to_owned(),
        Hint::Rules => "q:".to_owned(),
        Hint::Schedules => "s:".to_owned(),
        Hint::Flows => "fl:".to_owned(),
        Hint::Runs => "ru:".to_owned(),
        Hint::Mail { id } => format!("ml:{id}"),
        Hint::Watch { id } => format!("w:{id}"),
        Hint::Follow { ids } => {
            let ids: Vec<String> = ids.iter().map(|id| id.0.simple().to_string()).collect();
            format!("fo:{}", ids.join(","))
        }
        Hint::Stream { id } => format!("st:{id}"),
        Hint::Ephemeral { id, serial, chunk } => {
            // What is said is text and numbers: it can always be written.
            let chunk = serde_json::to_string(chunk).unwrap_or_default();
            format!("ep:{id} {serial} {chunk}")
        }
        Hint::Wanted { queue } => format!("d:{queue}"),
        Hint::Room { queue } => format!("o:{queue}"),
        Hint::Watermark { queue } => format!("m:{queue}"),
        Hint::Finished { id } => format!("f:{id}"),
        Hint::Cancel { worker } => format!("c:{worker}"),
    }
}

/// What cannot be read means that anything may have changed.
fn read(text: &str) -> Option<Hint> {
    let (sort, rest) = text.split_once(':')?;
    let id = || rest.parse::<JobId>().ok();
    Some(match sort {
        "r" => Hint::Ready { queue: rest.to_owned() },
        "q" => Hint::Rules,
        "s" => Hint::Schedules,
        "fl" => Hint::Flows,
        "ru" => Hint::Runs,
        "ml" => Hint::Mail { id: id()? },
        "w" => Hint::Watch { id: id()? },
        "fo" => Hint::Follow { ids: rest.split(',').filter_map(|id| id.parse().ok()).collect() },
        "st" => Hint::Stream { id: id()? },
        "ep" => {
            let mut parts = rest.splitn(3, ' ');
            let (id, serial) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Hint::Ephemeral { id, serial, chunk: serde_json::from_str(parts.next()?).ok()? }
        }
        "d" => Hint::Wanted { queue: rest.to_owned() },
        "o" => Hint::Room { queue: rest.to_owned() },
        "m" => Hint::Watermark { queue: rest.to_owned() },
        "f" => Hint::Finished { id: id()? },
        "c" => Hint::Cancel { worker: rest.parse::<WorkerId>().ok()? },
        _ => Hint::Any,
    })
}

#[cfg(test)]
mod tests {
    use tidemill_core::stream::{Chunk, Said};

    use super::*;
    use crate::wake::FOLLOW_JOBS_MAX;

    #[test]
    fn hints_survive_the_channel_and_our_own_are_not_heard() {
        let (us, _) = Notifier::new();
        let hints = [
            Hint::Ready { queue: "a b:c".into() },
            Hint::Any,
            Hint::Rules,
            Hint::Schedules,
            Hint::Flows,
            Hint::Runs,
            Hint::Mail { id: JobId::new() },
            Hint::Watch { id: JobId::new() },
            Hint::Wanted { queue: "a b:c".into() },
            Hint::Room { queue: "a b:c".into() },
            Hint::Watermark { queue: "a b:c".into() },
            Hint::Finished { id: JobId::new() },
            Hint::Follow { ids: vec![JobId::new(), JobId::new()] },
            Hint::Stream { id: JobId::new() },
            ephemeral("a b:\0 \n", 7),
            Hint::Cancel { worker: WorkerId::new() },
        ];
        for hint in hints {
            assert_eq!(us.hear(&format!("other {}", write(&hint))), Some(hint.clone()));
            assert_eq!(us.hear(&format!("{} {}", us.process(), write(&hint))), None);
        }
        assert_eq!(us.hear("nonsense"), None);
    }

    fn ephemeral(text: &str, serial: u32) -> Hint {
        let (at, said) = (jiff::Timestamp::UNIX_EPOCH, Said::text(text));
        let chunk = Box::new(Chunk { number: None, at, said });
        Hint::Ephemeral { id: JobId(uuid::Uuid::nil()), serial, chunk }
    }

    #[test]
    fn what_may_be_lost_is_given_up_before_what_costs_a_look() {
        let (said, stream) = (ephemeral("x", 0), Hint::Stream { id: JobId::new() });
        let few = vec![said.clone(), stream.clone(), said.clone(), ephemeral("x", 1)];
        assert_eq!(bounded(few), [said, stream.clone(), ephemeral("x", 1)], "each once, in order");
        let many = (0..=HINTS_MAX as u32).map(|serial| ephemeral("x", serial));
        assert_eq!(bounded(many.chain([stream.clone()]).collect()), [stream]);
        let many = (0..=HINTS_MAX).map(|_| Hint::Stream { id: JobId::new() });
        assert_eq!(bounded(many.collect()), [Hint::Any]);
    }

    #[test]
    fn the_largest_hints_fit_into_a_payload() {
        let most = "x".repeat(tidemill_core::limit::EPHEMERAL_BYTES_MAX);
        let ids = (0..FOLLOW_JOBS_MAX).map(|_| JobId::new()).collect();
        for hint in [ephemeral(&most, u32::MAX), Hint::Follow { ids }] {
            assert!(write(&hint).len() < 7900, "a payload has less than 8,000 bytes");
        }
    }
}
