//! `tidemill queues set --depth-max …`: how deep a queue may get, and what happens then.

use tidemill::{Overflow, QueueRules};

use crate::duration::{Span, short};
use crate::output;

use super::set::{OrNone, change, or_none, some_or_none};

/// The rules of depth that were given.
#[derive(Debug, clap::Args)]
pub struct Depth {
    /// At most this many jobs wait in it; `none` takes the bound away, and --overflow with it [default: none]
    #[arg(long = "depth-max", value_name = "JOBS", value_parser = some_or_none::<u64>)]
    most: Option<OrNone<u64>>,
    /// What becomes of a job that does not fit: reject, wait:DURATION, drop_oldest or divert:QUEUE
    #[arg(long, value_name = "POLICY", value_parser = overflow)]
    overflow: Option<Overflow>,
    /// Producers should pause at this depth [default: 80 % of --depth-max]
    #[arg(long, value_name = "JOBS", value_parser = some_or_none::<u64>)]
    high: Option<OrNone<u64>>,
    /// Producers may go on at this depth [default: five eighths of --high]
    #[arg(long, value_name = "JOBS", value_parser = or_none(str::parse::<u64>))]
    low: Option<OrNone<u64>>,
}

impl Depth {
    pub fn is_empty(&self) -> bool {
        let marks = self.high.is_some() || self.low.is_some();
        !(marks || self.most.is_some() || self.overflow.is_some())
    }

    fn takes_bound(&self) -> bool {
        matches!(self.most, Some(OrNone(None)))
    }

    /// What of these rules goes with the bound that is taken away, in words.
    pub fn lost(&self, before: &QueueRules) -> Vec<String> {
        let mut lost = Vec::new();
        if !self.takes_bound() || before.depth_max.is_none() {
            return lost;
        }
        if before.overflow != Overflow::Reject && self.overflow.is_none() {
            lost.push(format!("the policy of a full queue ({})", then(&before.overflow)));
        }
        if let (Some(low), None, None, None) =
            (before.low_water, before.high_water, self.high, self.low)
        {
            lost.push(format!("the low watermark ({})", output::grouped(low)));
        }
        lost
    }

    /// Changes what was given; all else stays.
    pub fn apply(&self, rules: &mut QueueRules) {
        change(&mut rules.depth_max, self.most);
        if self.takes_bound() {
            // What cannot be without a bound goes with it; watermarks of their own stay.
            rules.overflow = Overflow::Reject;
            rules.low_water = rules.low_water.filter(|_| rules.high_water.is_some());
        }
        rules.overflow = self.overflow.clone().unwrap_or_else(|| rules.overflow.clone());
        change(&mut rules.high_water, self.high);
        change(&mut rules.low_water, self.low);
    }
}

/// The rules of depth in words, if there are any.
pub fn said(rules: &QueueRules) -> Option<String> {
    let marks = rules.watermarks()?;
    let marks =
        format!("watermarks {} and {}", output::grouped(marks.high), output::grouped(marks.low));
    let Some(depth_max) = rules.depth_max else { return Some(marks) };
    let then = then(&rules.overflow);
    Some(format!("full at {}, then {then}, {marks}", output::grouped(depth_max)))
}

/// What a full queue does.
fn then(overflow: &Overflow) -> String {
    match overflow {
        Overflow::Reject => "rejects".to_owned(),
        Overflow::Wait { wait_ms } => {
            format!("waits {}", short(std::time::Duration::from_millis(*wait_ms)))
        }
        Overflow::DropOldest => "drops its oldest".to_owned(),
        Overflow::Divert { queue } => format!("diverts to {queue}"),
    }
}

fn overflow(text: &str) -> Result<Overflow, String> {
    let word = text.replace('-', "_");
    match (word.as_str(), text.split_once(':')) {
        ("reject", _) => Ok(Overflow::Reject),
        ("drop_oldest", _) => Ok(Overflow::DropOldest),
        (_, Some(("wait", wait))) => {
            let span: Span = wait.parse()?;
            Ok(Overflow::Wait { wait_ms: span.0.as_millis() as u64 })
        }
        (_, Some(("divert", queue))) => Ok(Overflow::Divert { queue: queue.to_owned() }),
        _ => Err("one of reject, wait:DURATION, drop_oldest, divert:QUEUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        let divert = Overflow::Divert { queue: "a:b".into() };
        for (text, expected) in [
            ("reject", Some(Overflow::Reject)),
            ("drop-oldest", Some(Overflow::DropOldest)),
            ("drop_oldest", Some(Overflow::DropOldest)),
            ("wait:2s", Some(Overflow::Wait { wait_ms: 2000 })),
            ("divert:a:b", Some(divert)),
            ("wait", None),
            ("explode", None),
        ] {
            assert_eq!(overflow(text).ok(), expected, "{text}");
        }
    }
}
