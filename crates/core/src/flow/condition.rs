//! Expressions on edges, in CEL (the Common Expression Language): `output.total > 100 && failed == 0`.
//!
//! They see `output` (of a step with one job; null of others), `done` and `failed` (how many jobs of the
//! step ended so). They are compiled before a flow is written, so one that no parser understands is refused;
//! one that cannot be judged later (a field that is not there, a value that is no yes or no) does not hold,
//! and its step says why.

use cel::{Context, Program, Value};

use crate::payload::Payload;

/// What an expression is judged by.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// What the step's only job returned.
    pub output: Option<Payload>,
    /// Jobs that are done.
    pub done: u64,
    /// Jobs that are dead or were called off.
    pub failed: u64,
}

/// Says what is wrong with an expression, if anything.
pub fn check(when: &str) -> Result<(), String> {
    let program = Program::compile(when).map_err(|e| one_line(&e.to_string()))?;
    let references = program.references();
    let known = ["output", "done", "failed"];
    match references.variables().into_iter().find(|name| !known.contains(name)) {
        Some(name) => Err(format!("it names {name}, but knows only output, done and failed")),
        None => Ok(()),
    }
}

/// Whether the expression holds; an error says why it cannot be judged.
pub fn holds(when: &str, facts: &Facts) -> Result<bool, String> {
    let program = Program::compile(when).map_err(|e| one_line(&e.to_string()))?;
    let mut context = Context::default();
    let output: serde_json::Value = match &facts.output {
        Some(output) => output.read().map_err(|e| e.to_string())?,
        None => serde_json::Value::Null,
    };
    context.add_variable("output", output).map_err(|e| e.to_string())?;
    context.add_variable_from_value("done", facts.done as i64);
    context.add_variable_from_value("failed", facts.failed as i64);
    match program.execute(&context) {
        Ok(Value::Bool(holds)) => Ok(holds),
        Ok(other) => Err(format!("it is neither true nor false but {:?}", other.type_of())),
        Err(error) => Err(one_line(&error.to_string())),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limits;

    fn facts(output: &str) -> Facts {
        let output = Payload::parse(output, &Limits::default()).ok();
        Facts { output, done: 3, failed: 1 }
    }

    #[test]
    fn expressions_are_judged_by_output_and_counts() {
        for (when, output, expected) in [
            ("output.total > 100", r#"{"total":101}"#, Ok(true)),
            ("output.total > 100", r#"{"total":100}"#, Ok(false)),
            ("output == 'yes'", r#""yes""#, Ok(true)),
            ("'vip' in output.tags && done == 3", r#"{"tags":["vip"]}"#, Ok(true)),
            ("failed < 1", "null", Ok(false)),
        ] {
            assert_eq!(holds(when, &facts(output)), expected, "{when}");
        }
    }

    #[test]
    fn what_cannot_be_judged_says_why() {
        for (when, output) in
            [("output.total > 1", "{}"), ("output", "7"), ("output + 1", r#""a""#)]
        {
            assert!(holds(when, &facts(output)).is_err(), "{when}");
        }
    }

    #[test]
    fn what_does_not_compile_is_named_at_once() {
        assert_eq!(check("output.a == 1 || done > 3"), Ok(()));
        assert!(check("output.a ==").is_err());
        assert!(check("total > 1").is_err_and(|why| why.contains("total")));
    }
}
