//! Flows within flows: taken apart before anything else is looked at.
//!
//! What comes first in one comes after what the outer step comes after; what comes after the outer step comes after
//! all that come last in it. A branch at its end that is not taken is no end: then it is what comes before.

use std::collections::{BTreeSet, HashMap};

use crate::error::{Error, Result};
use crate::flow::plan::{Flat, invalid};
use crate::flow::{After, EDGES_MAX, Join, NESTING_MAX, On, STEPS_MAX, Step, UndoRule, Work};
use crate::limit::NAME_BYTES_MAX;
use crate::name;

/// Takes nested flows apart: their steps are named after the step that they are.
pub(super) fn flatten(steps: Vec<Step>, is_saga: bool) -> Result<Vec<Flat>> {
    let mut flat = Vec::new();
    let mut ends: HashMap<String, Vec<String>> = HashMap::new();
    unfold(steps, "", &Before::default(), &mut flat, &mut ends, 0)?;
    let mut edges = 0;
    for edge in flat.iter().flat_map(|step| &step.after).filter(|_| !ends.is_empty()) {
        edges += last_steps(&ends, &edge.step).len();
        check_edges(edges)?;
    }
    let optional = if is_saga { HashMap::new() } else { optional(&flat, &ends) };
    for step in &mut flat {
        let after = std::mem::take(&mut step.after);
        let mut others = BTreeSet::new();
        for edge in after {
            let last = last_steps(&ends, &edge.step);
            if ends.contains_key(&edge.step) && edge.on != On::Failure && !step.join.is_quorum() {
                others.extend(before(&last, &format!("{}/", edge.step), &optional));
            }
            step.after.extend(last.into_iter().map(|step| After { step, ..edge.clone() }));
        }
        if others.is_empty() {
            continue;
        }
        for edge in &step.after {
            others.remove(&edge.step);
        }
        edges += others.len();
        check_edges(edges)?;
        let either = |step| After { step, on: On::Either, when: None };
        step.after.extend(others.into_iter().map(either));
    }
    Ok(flat)
}

/// A few words may ask for many: every first step of a flow within has those of the outer one, and what comes after a
/// flow comes after all that come last in it, and after what may not be taken before those. So they are counted before
/// they are there, those of all steps together.
fn check_edges(number: usize) -> Result<()> {
    let max = EDGES_MAX;
    if number > max { Err(Error::FlowTooLarge { what: "edges", number, max }) } else { Ok(()) }
}

/// Steps that may not be taken, with what they come after: those with a condition, those for failures, and those behind
/// them. Nobody asks where no flow is within.
fn optional(flat: &[Flat], ends: &HashMap<String, Vec<String>>) -> HashMap<String, Vec<String>> {
    let (mut optional, mut behind) = (HashMap::new(), HashMap::<String, Vec<&Flat>>::new());
    if ends.is_empty() {
        return optional;
    }
    let parents = |step: &Flat| -> Vec<String> {
        step.after.iter().flat_map(|edge| last_steps(ends, &edge.step)).collect()
    };
    for step in flat {
        for parent in parents(step) {
            behind.entry(parent).or_default().push(step);
        }
    }
    let is_asked = |edge: &After| edge.when.is_some() || edge.on == On::Failure;
    let mut next: Vec<&Flat> = flat.iter().filter(|step| step.after.iter().any(is_asked)).collect();
    while let Some(step) = next.pop() {
        if optional.insert(step.name.clone(), parents(step)).is_none() {
            next.extend(behind.get(&step.name).into_iter().flatten());
        }
    }
    optional
}

/// What these ends of a flow come after, as far as they may not be taken: then it is that by which the whole has ended.
/// It only has to have ended: whatever failed behind it tells of itself.
fn before(
    last: &[String],
    within: &str,
    optional: &HashMap<String, Vec<String>>,
) -> BTreeSet<String> {
    let (mut found, mut next) = (BTreeSet::new(), last.to_vec());
    while let Some(step) = next.pop() {
        for parent in optional.get(&step).into_iter().flatten() {
            if parent.starts_with(within) && found.insert(parent.clone()) {
                next.push(parent.clone());
            }
        }
    }
    found
}

/// The steps that come last in a step: itself or, if it is a flow, those that come last in its last ones.
fn last_steps(ends: &HashMap<String, Vec<String>>, name: &str) -> Vec<String> {
    let (mut found, mut next) = (Vec::new(), vec![name]);
    while let Some(name) = next.pop() {
        match ends.get(name) {
            Some(last) => next.extend(last.iter().rev().map(String::as_str)),
            None => found.push(name.to_owned()),
        }
    }
    found
}

/// What comes before the first steps of a flow within a flow, and for how much of it they wait.
#[derive(Default)]
struct Before {
    after: Vec<After>,
    join: Join,
}

fn unfold(
    steps: Vec<Step>,
    prefix: &str,
    before: &Before,
    flat: &mut Vec<Flat>,
    ends: &mut HashMap<String, Vec<String>>,
    depth: usize,
) -> Result<()> {
    let inner: BTreeSet<String> = steps.iter().map(|step| step.name.clone()).collect();
    for step in steps {
        name::check("step", &step.name, NAME_BYTES_MAX)?;
        if step.name.contains('/') {
            return Err(invalid(
                &step.name,
                "its name has a slash, which nested flows are named with",
            ));
        }
        let name = format!("{prefix}{}", step.name);
        if flat.len() >= STEPS_MAX {
            return Err(Error::FlowTooLarge {
                what: "steps",
                number: flat.len() + 1,
                max: STEPS_MAX,
            });
        }
        let mut after = step.after;
        for edge in &mut after {
            if inner.contains(&edge.step) {
                edge.step = format!("{prefix}{}", edge.step);
            }
        }
        let mut join = step.join;
        if after.is_empty() {
            if !before.after.is_empty() {
                let others: usize = flat.iter().map(|step| step.after.len()).sum();
                check_edges(others + before.after.len())?;
            }
            after.clone_from(&before.after);
            if join == Join::default() {
                join = before.join;
            }
        }
        match step.work {
            Work::Jobs(jobs) => {
                let Step { undo, pivot, .. } = step;
                flat.push(Flat { name, jobs, after, join, undo, pivot });
            }
            Work::Flow(_) if depth == NESTING_MAX => {
                return Err(Error::FlowTooLarge {
                    what: "levels",
                    number: depth + 1,
                    max: NESTING_MAX,
                });
            }
            Work::Flow(_) if step.pivot || step.undo != UndoRule::Missing => {
                return Err(invalid(&name, "it is a flow: its steps say how they are undone"));
            }
            Work::Flow(inner) if inner.is_empty() => {
                return Err(invalid(&name, "the flow within has no steps"));
            }
            Work::Flow(inner) => {
                let last = last_of(&inner).into_iter().map(|last| format!("{name}/{last}"));
                ends.insert(name.clone(), last.collect());
                let before = Before { after, join };
                unfold(inner, &format!("{name}/"), &before, flat, ends, depth + 1)?;
            }
        }
    }
    Ok(())
}

/// The steps that nobody of the same flow comes after.
fn last_of(steps: &[Step]) -> Vec<String> {
    let waited: BTreeSet<&str> =
        steps.iter().flat_map(|step| &step.after).map(|edge| edge.step.as_str()).collect();
    let last = steps.iter().map(|step| &step.name).filter(|name| !waited.contains(name.as_str()));
    last.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::plan::tests::{plan, step};
    use crate::flow::{Need, Plan};

    fn within(name: &str, after: &[&str], steps: Vec<Step>) -> Step {
        Step { work: Work::Flow(steps), ..step(name, after) }
    }

    fn edges(plan: &Plan) -> Vec<(&str, &str)> {
        let name = |number: u32| plan.steps[number as usize].name.as_str();
        plan.edges.iter().map(|edge| (name(edge.from), name(edge.to))).collect()
    }

    #[test]
    fn edges_that_a_few_words_ask_for_are_counted_before_they_are_there() {
        let names: Vec<String> = (0..1000).map(|n| format!("s{n}")).collect();
        let after: Vec<&str> = names.iter().map(String::as_str).collect();
        let steps = || names.iter().map(|name| step(name, &[])).collect::<Vec<_>>();
        let too_many = |steps| flatten(steps, false).map(|flat| flat.len()).unwrap_err().code();
        assert_eq!(too_many(vec![within("a", &after, steps())]), "flow_too_large");
        let behind = (0..1000).map(|n| step(&format!("b{n}"), &["a"]));
        let all = std::iter::once(within("a", &[], steps())).chain(behind).collect();
        assert_eq!(too_many(all), "flow_too_large");
        let few = std::iter::once(within("a", &[], steps())).chain([step("b", &["a"])]).collect();
        assert_eq!(flatten(few, false).unwrap()[1000].after.len(), 1000);
        // All of a chain are optional where its first one is: whatever comes behind it comes after each.
        let chain = || {
            let behind = |n: usize| step(&names[n], &[&names[n - 1]]);
            let when = After { when: Some("x".to_owned()), ..After::success("before") };
            let first = Step { after: vec![when], ..step(&names[0], &[]) };
            std::iter::once(first).chain((1..500).map(behind)).collect::<Vec<_>>()
        };
        let flow = |behind: usize| {
            let behind = (0..behind).map(|n| step(&format!("b{n}"), &["a"]));
            let first = [step("before", &[]), within("a", &[], chain())];
            first.into_iter().chain(behind).collect::<Vec<_>>()
        };
        assert_eq!(too_many(flow(499)), "flow_too_large");
        assert_eq!(flatten(flow(2), false).unwrap()[501].after.len(), 500);
    }

    #[test]
    fn what_comes_after_a_flow_waits_for_all_that_come_last_however_deep() {
        let b = within("b", &[], vec![step("c", &[]), step("d", &[])]);
        let plan = plan(vec![within("a", &[], vec![b, step("e", &[])]), step("end", &["a"])]);
        assert_eq!(edges(&plan), [("a/b/c", "end"), ("a/b/d", "end"), ("a/e", "end")]);
    }

    #[test]
    fn the_first_steps_of_a_flow_wait_by_its_join() {
        let own = Join { need: Need::Finished, ..Join::default() };
        let steps = vec![
            step("x", &[]),
            Step { join: own, ..step("y", &[]) },
            step("z", &["x"]),
            within("deep", &[], vec![step("w", &[])]),
        ];
        let join = Join { need: Need::Quorum { jobs: 1 }, ..Join::default() };
        let outer = Step { join, ..within("in", &["a", "b"], steps) };
        let plan = plan(vec![step("a", &[]), step("b", &[]), outer]);
        let joins: Vec<(&str, Need)> =
            plan.steps[2..].iter().map(|step| (step.name.as_str(), step.join.need)).collect();
        let expected = [
            ("in/x", join.need),
            ("in/y", Need::Finished),
            ("in/z", Need::default()),
            ("in/deep/w", join.need),
        ];
        assert_eq!(joins, expected);
    }
}
