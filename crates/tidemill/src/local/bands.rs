//! Four lines, first in first out each, served by weight so that none starves.
//!
//! Every band has a place on a common scale. The one that is furthest behind is served and moves on
//! by its stride: 1 for `urgent`, 2 for `high`, 4 for `normal`, 8 for `low`, which makes shares of
//! 8:4:2:1 and mixes them evenly. A band that was empty starts where the others are, so that it can
//! not claim what it did not want before.
//!
//! Who leaves from the middle of a line is only counted, and swept out when the gone outnumber those
//! who wait: leaving costs a constant, and the lines stay proportional to what is in them.

use std::collections::VecDeque;

use tidemill_core::Priority;

const STRIDE: [u64; 4] = [1, 2, 4, 8];
/// Below this a sweep is not worth its walk.
const SWEEP_MIN: usize = 64;

/// What stands in a line.
pub(super) trait Waits {
    /// Whether it still waits; once false, always false.
    fn waits(&self) -> bool;
}

#[derive(Debug)]
pub(super) struct Bands<T> {
    lines: [VecDeque<T>; 4],
    waiting: [usize; 4],
    gone: usize,
    place: [u64; 4],
    scale: u64,
}

impl<T: Waits> Bands<T> {
    pub(super) fn new() -> Self {
        Self { lines: Default::default(), waiting: [0; 4], gone: 0, place: [0; 4], scale: 0 }
    }

    /// How many wait, in all bands.
    pub(super) fn len(&self) -> usize {
        self.waiting.iter().sum()
    }

    pub(super) fn push(&mut self, priority: Priority, item: T) {
        let band = priority as usize;
        if self.waiting[band] == 0 {
            self.place[band] = self.place[band].max(self.scale);
        }
        self.waiting[band] += 1;
        self.lines[band].push_back(item);
    }

    /// The next one that still waits.
    pub(super) fn pop(&mut self) -> Option<T> {
        let waiting = (0..4).filter(|band| self.waiting[*band] > 0);
        let band = waiting.min_by_key(|band| (self.place[*band], *band))?;
        while let Some(item) = self.lines[band].pop_front() {
            if self.gone == 0 || item.waits() {
                self.waiting[band] -= 1;
                self.scale = self.place[band];
                self.place[band] += STRIDE[band];
                return Some(item);
            }
            self.gone -= 1;
        }
        None
    }

    /// To be called when one that is in the line of `priority` has stopped waiting.
    pub(super) fn left(&mut self, priority: Priority) {
        self.waiting[priority as usize] -= 1;
        self.gone += 1;
        if self.gone >= SWEEP_MIN && self.gone > self.len() {
            for line in &mut self.lines {
                line.retain(T::waits);
                line.shrink_to(line.len() * 2);
            }
            self.gone = 0;
        }
    }

    /// Takes out all that still wait.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.waiting = [0; 4];
        self.gone = 0;
        let all = self.lines.iter_mut().flat_map(std::mem::take);
        all.filter(T::waits).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    struct Item(usize, Rc<Cell<bool>>);

    impl Waits for Item {
        fn waits(&self) -> bool {
            self.1.get()
        }
    }

    fn item(number: usize) -> Item {
        Item(number, Rc::new(Cell::new(true)))
    }

    #[test]
    fn full_bands_are_served_eight_four_two_one() {
        let mut bands = Bands::new();
        for priority in Priority::ALL {
            (0..150).for_each(|_| bands.push(priority, item(priority as usize)));
        }
        let mut served = [0; 4];
        (0..150).for_each(|_| served[bands.pop().unwrap().0] += 1);
        assert_eq!(served, [80, 40, 20, 10]);
    }

    #[test]
    fn fresh_urgent_item_is_next() {
        let mut bands = Bands::new();
        (0..1_000).for_each(|_| bands.push(Priority::Low, item(3)));
        (0..500).for_each(|_| assert_eq!(bands.pop().unwrap().0, 3));
        bands.push(Priority::Urgent, item(0));
        assert_eq!(bands.pop().unwrap().0, 0);
    }

    #[test]
    fn lines_stay_small_when_all_leave() {
        let mut bands = Bands::new();
        for number in 0..10_000 {
            let one = item(number);
            bands.push(Priority::Normal, one.clone());
            one.1.set(false);
            bands.left(Priority::Normal);
        }
        assert_eq!(bands.len(), 0);
        assert!(bands.lines[2].len() <= SWEEP_MIN);
        assert!(bands.pop().is_none());
    }

    proptest! {
        /// Whatever comes and goes: first in first out per band, nobody lost, and the head of any
        /// line sees at most 17 others go first.
        #[test]
        fn order_holds_and_nobody_starves(steps in prop::collection::vec((0..7_u8, 0..50_usize), 1..400)) {
            let mut bands = Bands::new();
            let mut model: [VecDeque<(Item, usize)>; 4] = Default::default();
            for (number, (step, pick)) in steps.into_iter().enumerate() {
                match step {
                    0..4 => {
                        let one = item(number);
                        bands.push(Priority::ALL[step as usize], one.clone());
                        model[step as usize].push_back((one, 0));
                    }
                    4 if model[pick % 4].is_empty() => {}
                    4 => {
                        let line = &mut model[pick % 4];
                        let (one, _) = line.remove(pick % line.len()).unwrap();
                        one.1.set(false);
                        bands.left(Priority::ALL[pick % 4]);
                    }
                    _ => {
                        let popped = bands.pop().map(|one| one.0);
                        let is_popped = |(one, _): &(Item, usize)| Some(one.0) == popped;
                        let band = model.iter().position(|line| line.front().is_some_and(is_popped));
                        prop_assert_eq!(band.is_some(), model.iter().any(|line| !line.is_empty()));
                        band.and_then(|band| model[band].pop_front());
                        let others = model.iter_mut().enumerate();
                        let others = others.filter(|(other, _)| Some(*other) != band);
                        for (head, seen) in others.filter_map(|(_, line)| line.front_mut()) {
                            *seen += 1;
                            prop_assert!(*seen <= 17, "{} saw {} go first", head.0, seen);
                        }
                    }
                }
                prop_assert_eq!(bands.len(), model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
