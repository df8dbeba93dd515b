//! What a step waits for, and why it was skipped, in a few words.

use std::time::Duration;

use tidemill::StepView;
use tidemill_core::flow::{Join, Need, On, Rest};
use tidemill_store::flow::AfterView;

use crate::duration::short;
use crate::output::{count, grouped};

/// More parents than these are counted.
const PARENTS_MAX: usize = 4;

/// What there is to say of a step beside what its place says: `under` is the step that it is seen to hang from.
pub fn of(step: &StepView, under: Option<&str>) -> String {
    let join = join(step.join);
    let is_plain = |edge: &AfterView| edge.on == On::Success && edge.when.is_none();
    let is_seen = match step.after.as_slice() {
        [] => true,
        [edge] => is_plain(edge) && under == Some(edge.step.as_str()),
        _ => false,
    };
    let waits = match (is_seen, join.is_empty()) {
        (true, _) => join,
        (false, true) => after(&step.after),
        (false, false) => format!("{}: {join}", after(&step.after)),
    };
    let skipped = step.reason.as_ref().map(|reason| format!("skipped: {reason}"));
    let skipped = skipped.unwrap_or_default();
    // What explains more stands first: the end of a long line may not be seen.
    let by_condition = step.after.iter().any(|edge| edge.held == Some(false));
    let pivot = if step.pivot { "no way back once it is done".to_owned() } else { String::new() };
    let parts = if by_condition { [waits, skipped, pivot] } else { [skipped, waits, pivot] };
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" · ")
}

fn after(edges: &[AfterView]) -> String {
    let shown = if edges.len() > PARENTS_MAX { PARENTS_MAX - 1 } else { edges.len() };
    let names: Vec<_> = edges[..shown].iter().map(edge).collect();
    let names = names.join(", ");
    match edges.len() - shown {
        0 => format!("after {names}"),
        more => format!("after {names} and {} more", grouped(more as u64)),
    }
}

fn edge(edge: &AfterView) -> String {
    let name = &edge.step;
    let ended = match edge.on {
        On::Success => name.clone(),
        On::Failure => format!("failure of {name}"),
        On::Either => format!("{name} (well or not)"),
    };
    let held = match edge.held {
        Some(true) => " ✔",
        Some(false) => " ✘",
        None => "",
    };
    match &edge.when {
        Some(when) => format!("{ended} if {when}{held}"),
        None => ended,
    }
}

fn join(join: Join) -> String {
    let mut parts = Vec::new();
    match join.need {
        Need::All { failures_max: 0 } => {}
        Need::All { failures_max } => {
            let failures = count(u64::from(failures_max), "failure", "failures");
            parts.push(format!("bears {failures}"));
        }
        Need::Finished => parts.push("however they end".to_owned()),
        Need::Quorum { jobs: 1 } => parts.push("the first is enough".to_owned()),
        Need::Quorum { jobs } => parts.push(format!("{} are enough", grouped(u64::from(jobs)))),
    }
    parts.extend(join.within_ms.map(|ms| format!("within {}", short(Duration::from_millis(ms)))));
    if join.rest == Rest::Cancel {
        parts.push("cancels the rest".to_owned());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::step;
    use super::*;

    #[test]
    fn only_what_its_place_does_not_say_is_said() {
        assert_eq!(of(&step("b", &["a"]), Some("a")), "");
        assert_eq!(of(&step("b", &["a"]), None), "after a");
        assert_eq!(of(&step("c", &["a", "b"]), Some("x")), "after a, b");
        let many = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(of(&step("z", &many), None), "after a, b, c and 3 more");
    }

    #[test]
    fn conditions_and_joins_are_said() {
        let mut one = step("b", &["a"]);
        one.after[0].when = Some("output > 1".to_owned());
        one.after[0].held = Some(false);
        one.reason = Some("no condition holds".to_owned());
        let expected = "after a if output > 1 ✘ · skipped: no condition holds";
        assert_eq!(of(&one, Some("a")), expected);
        let mut one = step("b", &["a"]);
        one.join =
            Join { need: Need::Quorum { jobs: 3 }, within_ms: Some(60_000), rest: Rest::Cancel };
        assert_eq!(of(&one, Some("a")), "3 are enough, within 1m, cancels the rest");
        one.after[0].on = On::Failure;
        one.join = Join::default();
        assert_eq!(of(&one, Some("a")), "after failure of a");
        one.pivot = true;
        assert_eq!(of(&one, Some("a")), "after failure of a · no way back once it is done");
    }
}
