//! `tidemill work --dedicated QUEUE=SLOTS`: queues with slots of their own.
//!
//! It refuses what contradicts itself: a queue that is given twice, and one that shares slots and does not.

use std::fmt;
use std::str::FromStr;

use tidemill::Worker;
use tidemill_core::queue::matches;

use crate::exit::{Failure, Outcome};

/// A queue, and the slots that only its jobs take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedicated {
    queue: String,
    slots: u16,
    /// Its jobs may take shared slots too.
    overflows: bool,
}

impl Dedicated {
    /// The worker, with these slots.
    pub fn of(&self, worker: Worker) -> Worker {
        let (queue, slots) = (&*self.queue, usize::from(self.slots));
        if self.overflows {
            worker.dedicated_with_overflow(queue, slots)
        } else {
            worker.dedicated(queue, slots)
        }
    }
}

impl FromStr for Dedicated {
    type Err = String;

    /// Reads `pay=5` or `sign-up=2+`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "a queue and its slots, such as pay=5, or pay=5+ to let it take shared ones too";
        let (queue, slots) = text.rsplit_once('=').ok_or_else(wrong)?;
        let (slots, overflows) = slots.strip_suffix('+').map_or((slots, false), |own| (own, true));
        let slots = slots.parse().map_err(|_| wrong())?;
        if queue.is_empty() {
            return Err(wrong().to_owned());
        }
        if slots == 0 {
            return Err(format!("{queue} would have no slot; give it at least 1"));
        }
        Ok(Self { queue: queue.to_owned(), slots, overflows })
    }
}

impl fmt::Display for Dedicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, slots, overflows } = self;
        write!(f, "{slots} more of {queue}{}", if *overflows { " first" } else { "" })
    }
}

/// Refuses slots that contradict each other. `shared`: the queues that share the others.
pub fn check(shared: &[String], dedicated: &[Dedicated]) -> Outcome<()> {
    for (number, Dedicated { queue, slots, overflows }) in dedicated.iter().enumerate() {
        if dedicated[..number].iter().any(|other| other.queue == *queue) {
            return Err(Failure::usage(format!("{queue} has dedicated slots twice"))
                .hint("give --dedicated once for each queue"));
        }
        let sharing = shared.iter().find(|shared| matches(shared, queue));
        if let Some(sharing) = sharing.filter(|_| !overflows) {
            let message = format!(
                "{queue} is to have {slots} slots of its own and no others, and shares with {sharing}"
            );
            return Err(Failure::usage(message).hint(format!(
                "--dedicated {queue}={slots}+ lets it take shared slots too; --queue names those that share"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read() {
        let own = |queue: &str, slots, overflows| {
            Some(Dedicated { queue: queue.to_owned(), slots, overflows })
        };
        for (text, expected) in [
            ("pay=5", own("pay", 5, false)),
            ("sign-up=2+", own("sign-up", 2, true)),
            ("mail:*=3", own("mail:*", 3, false)),
            ("a=b=1", own("a=b", 1, false)),
            ("pay", None),
            ("pay=", None),
            ("pay=+", None),
            ("pay=0", None),
            ("pay=-1", None),
            ("pay=65536", None),
            ("=5", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |shared: &[&str], own: &[&str]| {
            let shared: Vec<_> = shared.iter().map(|queue| (*queue).to_owned()).collect();
            let own: Vec<Dedicated> = own.iter().map(|own| own.parse().unwrap()).collect();
            check(&shared, &own).err().map(|failure| failure.message().to_owned())
        };
        assert_eq!(refused(&["default"], &["pay=5", "sign-up=2+", "mail:*=1"]), None);
        assert_eq!(refused(&["*"], &["pay=5+"]), None);
        assert_eq!(refused(&["pay"], &["pay=5+"]), None);
        for (shared, own, expected) in [
            ("default", vec!["pay=5", "pay=5+"], "pay has dedicated slots twice"),
            ("pay", vec!["pay=5"], "5 slots of its own and no others, and shares with pay"),
            ("*", vec!["pay=5"], "and shares with *"),
            ("mail:*", vec!["mail:*=1"], "and shares with mail:*"),
        ] {
            let said = refused(&[shared], &own).unwrap();
            assert!(said.contains(expected), "{said}");
        }
    }
}
