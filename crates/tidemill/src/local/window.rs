//! At most so many starts in any window of time, exactly.
//!
//! The window slides: it remembers when each of the last starts happened, and the next may happen
//! when the oldest of them is a whole window ago. A start is noted after the task's first poll, so
//! the note is never earlier than the start, whatever the scheduler did in between; until then it is
//! pending and counts as if it happened now. So there is no moment at which a window of any phase
//! holds one start too many.
//!
//! It refuses to guess: buckets and averages are cheaper and let twice the rate through at a border.

use std::collections::VecDeque;

/// When the next start may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    Now,
    /// Not before this moment.
    At(u64),
    /// Not before a pending start is noted.
    Later,
}

/// Times are nanoseconds since the queue was built.
#[derive(Debug)]
pub(super) struct Window {
    starts_max: usize,
    length_ns: u64,
    pending: usize,
    recent: VecDeque<u64>,
    /// Which window this is: a task that started under an earlier one is not pending here.
    number: u32,
}

impl Window {
    pub(super) fn new(starts_max: usize, length_ns: u64, number: u32) -> Self {
        Self { starts_max, length_ns, pending: 0, recent: VecDeque::new(), number }
    }

    /// Changes the rule; what started already still counts.
    pub(super) fn change(&mut self, starts_max: usize, length_ns: u64) {
        (self.starts_max, self.length_ns) = (starts_max, length_ns);
    }

    pub(super) fn opens(&mut self, now: u64) -> Opens {
        while self.recent.front().is_some_and(|start| start.saturating_add(self.length_ns) <= now) {
            self.recent.pop_front();
        }
        let taken = self.recent.len() + self.pending;
        let Some(over) = taken.checked_sub(self.starts_max) else { return Opens::Now };
        // Room comes when one more than those over the rule has passed.
        match self.recent.get(over) {
            Some(start) => Opens::At(start.saturating_add(self.length_ns)),
            None => Opens::Later,
        }
    }

    /// Takes a place for a start that is about to happen; `opens` has said `Now`.
    pub(super) fn reserve(&mut self) -> u32 {
        self.pending += 1;
        self.number
    }

    /// Notes that a start happened, not later than `now`.
    pub(super) fn note(&mut self, reserved: u32, now: u64) {
        if reserved == self.number {
            self.pending -= 1;
        }
        self.recent.push_back(self.recent.back().map_or(now, |last| now.max(*last)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn window_opens_a_whole_length_after_the_oldest_start() {
        let mut window = Window::new(2, 10, 0);
        for now in [0, 3] {
            assert_eq!(window.opens(now), Opens::Now);
            let reserved = window.reserve();
            window.note(reserved, now);
        }
        assert_eq!(window.opens(9), Opens::At(10));
        assert_eq!(window.opens(10), Opens::Now);
    }

    #[test]
    fn pending_start_holds_its_place_until_it_is_noted() {
        let mut window = Window::new(1, 10, 0);
        let reserved = window.reserve();
        assert_eq!(window.opens(1_000), Opens::Later);
        window.note(reserved, 1_005);
        assert_eq!(window.opens(1_005), Opens::At(1_015));
    }

    #[test]
    fn smaller_rule_waits_for_enough_of_the_old_starts() {
        let mut window = Window::new(3, 10, 0);
        for now in [0, 1, 2] {
            let reserved = window.reserve();
            window.note(reserved, now);
        }
        window.change(1, 10);
        assert_eq!(window.opens(5), Opens::At(12));
    }

    #[test]
    fn start_of_an_earlier_window_counts_once() {
        let mut window = Window::new(2, 10, 7);
        let reserved = window.reserve();
        window.note(6, 0);
        assert_eq!(window.opens(0), Opens::At(10));
        window.note(reserved, 1);
        assert_eq!(window.opens(1), Opens::At(10));
    }

    proptest! {
        #[test]
        fn no_window_of_any_phase_holds_one_too_many(
            starts_max in 1..6_usize,
            length in 1..50_u64,
            steps in prop::collection::vec((0..20_u64, 0..20_u64), 1..200),
        ) {
            let mut window = Window::new(starts_max, length, 0);
            let (mut now, mut starts) = (0, Vec::new());
            for (wait, delay) in steps {
                now += wait;
                if window.opens(now) == Opens::Now {
                    let reserved = window.reserve();
                    starts.push(now);
                    now += delay;
                    window.note(reserved, now);
                }
            }
            for pair in starts.windows(starts_max + 1) {
                prop_assert!(pair[starts_max] - pair[0] >= length);
            }
        }
    }
}
