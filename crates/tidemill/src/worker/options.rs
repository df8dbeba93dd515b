//! The choices of a worker, with their defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::Error as Invalid;
use tidemill_core::queue::matches;
use tidemill_core::wire::work::QueueSlots;
use tidemill_store::request::LEASE_TTL;

use crate::error::Result;
use crate::testing::Crash;
use crate::worker::stop::Stop;

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) name: String,
    /// The version of the code, as runs that begin here remember it.
    pub(crate) version: String,
    pub(crate) queues: Vec<String>,
    pub(crate) slots: usize,
    pub(crate) dedicated: Vec<Dedicated>,
    /// Jobs asked for in one claim: a lease must stay small enough to be looked through.
    pub(crate) claim_jobs_max: usize,
    pub(crate) run_timeout: Duration,
    pub(crate) lease_ttl: Duration,
    pub(crate) lost_max: u16,
    /// A handler that was called off gets this long to end by itself.
    pub(crate) cancel_grace: Duration,
    /// The store is looked at this often when no hint comes: hints may be lost.
    pub(crate) poll_every: Duration,
    pub(crate) stop: Stop,
    /// Where its process dies, in a test.
    pub(crate) crash: Option<Crash>,
    /// Its attempts are of jobs that are in no store, in a test.
    pub(crate) is_inline: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: format!("{}:{}", host(), std::process::id()),
            version: String::new(),
            queues: Vec::new(),
            slots: 100,
            dedicated: Vec::new(),
            claim_jobs_max: 500,
            run_timeout: Duration::from_hours(1),
            lease_ttl: LEASE_TTL,
            lost_max: 3,
            cancel_grace: Duration::from_secs(5),
            poll_every: Duration::from_secs(1),
            stop: Stop::default(),
            crash: None,
            is_inline: false,
        }
    }
}

/// Slots that only the jobs of one queue may take.
#[derive(Debug, Clone)]
pub(crate) struct Dedicated {
    pub(crate) queue: String,
    pub(crate) slots: usize,
    /// Its jobs may take shared slots too.
    pub(crate) overflows: bool,
}

impl Options {
    /// Every queue and pattern that is taken from.
    pub(crate) fn all_queues(&self) -> Vec<String> {
        let mut queues = self.queues.clone();
        for own in &self.dedicated {
            if !queues.contains(&own.queue) {
                queues.push(own.queue.clone());
            }
        }
        queues
    }

    /// Those whose jobs may take shared slots.
    pub(crate) fn shared_queues(&self) -> Vec<String> {
        let overflows = |queue: &String| {
            self.dedicated.iter().find(|own| own.queue == *queue).is_none_or(|own| own.overflows)
        };
        self.all_queues().into_iter().filter(overflows).collect()
    }

    /// Refuses a queue with slots of its own that another entry means too: nobody could say whose slots its jobs take.
    /// One that overflows may be meant by a wider pattern of those that share, as they are the next ones it takes.
    pub(crate) fn check(&self) -> Result<()> {
        for (number, own) in self.dedicated.iter().enumerate() {
            let sharing = self.queues.iter().filter(|queue| **queue != own.queue);
            let sharing = sharing.filter(|queue| !(own.overflows && matches(queue, &own.queue)));
            let others = self.dedicated[..number].iter().map(|other| &other.queue);
            let is_same =
                |other: &&String| matches(other, &own.queue) || matches(&own.queue, other);
            if let Some(other) = sharing.chain(others).find(is_same) {
                let reason = format!(
                    "{:?} has slots of its own, and {other:?} means the same queues; name those that share so that it \
                     does not, or let it overflow",
                    own.queue
                );
                return Err(Invalid::WorkInvalid { reason }.into());
            }
        }
        Ok(())
    }

    pub(crate) fn all_slots(&self) -> usize {
        self.slots + self.dedicated.iter().map(|own| own.slots).sum::<usize>()
    }

    /// Which of them the jobs of each queue may take, unless that is all.
    pub(crate) fn slots_of(&self) -> BTreeMap<String, QueueSlots> {
        if self.dedicated.is_empty() {
            return BTreeMap::new();
        }
        let may_take = |queue: String| {
            let (own, shared) = match self.dedicated.iter().find(|own| own.queue == queue) {
                Some(own) if own.overflows => (own.slots, self.slots),
                Some(own) => (own.slots, 0),
                None => (0, self.slots),
            };
            (queue, QueueSlots { own: own as u32, shared: shared as u32 })
        };
        self.all_queues().into_iter().map(may_take).collect()
    }

    /// What it says of its lease: a longer one than usual must be known to whoever rescues.
    pub(crate) fn own_lease_ttl(&self) -> Option<Duration> {
        (self.lease_ttl > LEASE_TTL).then_some(self.lease_ttl)
    }

    /// Three beats fit into a lease, so that one lost beat costs nothing.
    pub(crate) fn beat_every(&self) -> Duration {
        self.lease_ttl / 3
    }
}

fn host() -> String {
    std::fs::read_to_string("/etc/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map_or_else(|| "host".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(queue: &str, slots: usize, overflows: bool) -> Dedicated {
        Dedicated { queue: queue.to_owned(), slots, overflows }
    }

    #[test]
    fn a_queue_with_slots_of_its_own_is_meant_once() {
        let (fixed, over) = (false, true);
        for (queues, dedicated, refused) in [
            (vec!["a", "b:*"], vec![("pay", fixed), ("mail", over)], None),
            (vec!["pay", "mail"], vec![("pay", fixed), ("mail", over)], None),
            (vec!["*"], vec![("mail", over)], None),
            (vec!["*"], vec![("pay", fixed)], Some("\"*\" means the same")),
            (vec!["m:vip"], vec![("m:*", over)], Some("\"m:vip\" means the same")),
            (vec![], vec![("m:vip", over), ("m:*", over)], Some("\"m:vip\" means the same")),
            (vec![], vec![("m:*", fixed), ("m:vip", fixed)], Some("\"m:*\" means the same")),
        ] {
            let queues = queues.into_iter().map(str::to_owned).collect();
            let dedicated =
                dedicated.into_iter().map(|(queue, over)| own(queue, 1, over)).collect();
            let checked = Options { queues, dedicated, ..Options::default() }.check();
            let said = checked.err().map(|error| error.to_string());
            let is_right = match (&said, refused) {
                (Some(said), Some(words)) => said.contains(words),
                (said, refused) => said.is_none() && refused.is_none(),
            };
            assert!(is_right, "{refused:?}: {said:?}");
        }
    }

    #[test]
    fn slots_are_told_by_queue_where_some_are_dedicated() {
        let queues = vec!["report".to_owned()];
        let shared = Options { queues, slots: 20, ..Options::default() };
        assert!(shared.slots_of().is_empty());
        let dedicated = vec![own("pay", 5, false), own("mail", 3, true)];
        let options = Options { dedicated, ..shared };
        let told: Vec<_> = options.slots_of().into_iter().collect();
        let expected = [("mail", 3, 20), ("pay", 5, 0), ("report", 0, 20)];
        let slots = |(queue, own, shared)| (str::to_owned(queue), QueueSlots { own, shared });
        assert_eq!(told, expected.map(slots));
        assert_eq!(options.all_slots(), 28);
    }
}
