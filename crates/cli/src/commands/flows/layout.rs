//! Where the steps of a flow stand in its drawing.
//!
//! A graph is drawn as a tree: a step hangs from the nearest step that all ways to it lead through. So a
//! branch stands below where it branches off, and a join below where its branches began, after the last of
//! them. From top to bottom no step stands above one that it comes after.

use std::collections::{HashMap, VecDeque};

use tidemill::StepView;

/// Deeper ones do not move further to the right.
const LEVEL_MAX: usize = 12;

/// A step in the drawing.
#[derive(Debug)]
pub struct Row<'a> {
    /// The step.
    pub step: &'a StepView,
    /// The lines to the left of it.
    pub rails: String,
    /// The step that it is seen to hang from.
    pub under: Option<&'a str>,
}

/// The rows of a drawing, from top to bottom.
pub fn rows(steps: &[StepView]) -> Vec<Row<'_>> {
    let graph = Graph::of(steps);
    let placed = graph.placed();
    let levels: Vec<usize> = placed.iter().map(|place| place.level).collect();
    let row = |(place, rails): (&Place, String)| {
        let under = place.under.map(|at| steps[at].name.as_str());
        Row { step: &steps[place.step], rails, under }
    };
    placed.iter().zip(rails(&levels)).map(row).collect()
}

struct Place {
    step: usize,
    level: usize,
    under: Option<usize>,
}

struct Graph {
    parents: Vec<Vec<usize>>,
    children: Vec<Vec<usize>>,
}

impl Graph {
    fn of(steps: &[StepView]) -> Self {
        let numbers: HashMap<&str, usize> =
            steps.iter().enumerate().map(|(at, step)| (step.name.as_str(), at)).collect();
        let of = |step: &StepView| {
            step.after.iter().filter_map(|edge| numbers.get(edge.step.as_str()).copied()).collect()
        };
        let parents: Vec<Vec<usize>> = steps.iter().map(of).collect();
        let mut children = vec![Vec::new(); steps.len()];
        for (child, parents) in parents.iter().enumerate() {
            for parent in parents {
                children[*parent].push(child);
            }
        }
        Self { parents, children }
    }

    /// All steps, none before one that it comes after.
    fn sorted(&self) -> Vec<usize> {
        let mut waits: Vec<usize> = self.parents.iter().map(Vec::len).collect();
        let mut free: VecDeque<usize> = (0..waits.len()).filter(|at| waits[*at] == 0).collect();
        let mut sorted = Vec::with_capacity(waits.len());
        while let Some(at) = free.pop_front() {
            sorted.push(at);
            for child in &self.children[at] {
                waits[*child] -= 1;
                if waits[*child] == 0 {
                    free.push_back(*child);
                }
            }
        }
        sorted
    }

    /// From top to bottom: each step below the one that dominates it.
    fn placed(&self) -> Vec<Place> {
        let sorted = self.sorted();
        let root = self.parents.len();
        let (mut above, mut depth) = (vec![root; root + 1], vec![0_usize; root + 1]);
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); root + 1];
        for at in sorted {
            let mut over = self.parents[at].iter().copied();
            let first = over.next().unwrap_or(root);
            let meet = over.fold(first, |mut a, mut b| {
                while a != b {
                    if depth[a] >= depth[b] { a = above[a] } else { b = above[b] }
                }
                a
            });
            (above[at], depth[at]) = (meet, depth[meet] + 1);
            below[meet].push(at);
        }
        let mut placed = Vec::with_capacity(root);
        let mut next: Vec<usize> = below[root].iter().rev().copied().collect();
        while let Some(step) = next.pop() {
            let level = (depth[step] - 1).min(LEVEL_MAX);
            let is_seen = depth[step] > 1 && depth[step] - 1 <= LEVEL_MAX;
            placed.push(Place { step, level, under: is_seen.then_some(above[step]) });
            next.extend(below[step].iter().rev());
        }
        placed
    }
}

/// The lines to the left of rows that stand at these levels.
fn rails(levels: &[usize]) -> Vec<String> {
    let mut goes_on = [false; LEVEL_MAX + 1];
    let rail = |level: &usize| {
        let level = *level;
        let mut text = String::new();
        for above in &goes_on[1..level.max(1)] {
            text.push_str(if *above { "│  " } else { "   " });
        }
        if level > 0 {
            text.push_str(if goes_on[level] { "├─ " } else { "└─ " });
        }
        goes_on[level] = true;
        goes_on[level + 1..].fill(false);
        text
    };
    let mut rails: Vec<String> = levels.iter().rev().map(rail).collect();
    rails.reverse();
    rails
}

#[cfg(test)]
pub mod tests {
    use tidemill_core::flow::{Join, On, StepState};
    use tidemill_store::flow::AfterView;

    use super::*;

    /// A step with one job, after these.
    pub fn step(name: &str, after: &[&str]) -> StepView {
        let edge = |step: &&str| AfterView {
            step: (*step).to_owned(),
            on: On::Success,
            when: None,
            held: None,
        };
        StepView {
            number: 0,
            name: name.to_owned(),
            kind: Some(name.to_owned()),
            first: None,
            state: StepState::Waiting,
            jobs: 1,
            done: 0,
            failed: 0,
            join: Join::default(),
            after: after.iter().map(edge).collect(),
            started_at: None,
            ended_at: None,
            reason: None,
            undo: None,
            undoes: None,
            pivot: false,
            superseded: false,
        }
    }

    fn drawn(steps: &[StepView]) -> Vec<String> {
        rows(steps).iter().map(|row| format!("{}{}", row.rails, row.step.name)).collect()
    }

    #[test]
    fn a_join_stands_below_its_branches_where_they_began() {
        let steps = [
            step("account", &[]),
            step("ready", &["mail", "data", "keys"]),
            step("mail", &["account"]),
            step("tenant", &["account"]),
            step("keys", &["account"]),
            step("data", &["tenant"]),
            step("crm", &["tenant"]),
        ];
        let expected =
            ["account", "├─ mail", "├─ tenant", "│  ├─ data", "│  └─ crm", "├─ keys", "└─ ready"];
        assert_eq!(drawn(&steps), expected);
    }

    #[test]
    fn what_begins_apart_is_joined_at_the_margin() {
        let steps = [step("a", &[]), step("b", &[]), step("b2", &["b"]), step("c", &["a", "b2"])];
        assert_eq!(drawn(&steps), ["a", "b", "└─ b2", "c"]);
        assert_eq!(rows(&steps)[2].under, Some("b"));
        assert_eq!(rows(&steps)[3].under, None);
    }

    #[test]
    fn the_longest_chain_stays_on_the_screen() {
        let name = |at: usize| format!("s{at}");
        let chain = (0..10_000).map(|at| match at {
            0 => step("s0", &[]),
            _ => step(&name(at), &[&name(at - 1)]),
        });
        let chain: Vec<_> = chain.collect();
        let rows = rows(&chain);
        assert!(rows.iter().map(|row| row.step.name.clone()).eq((0..10_000).map(name)));
        assert_eq!((rows[12].under, rows[13].under), (Some("s11"), None));
        assert!(rows.iter().all(|row| row.rails.chars().count() <= LEVEL_MAX * 3));
    }
}
