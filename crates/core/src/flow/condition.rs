//! Expressions on edges, in CEL (the Common Expression Language): `output.total > 100 && failed == 0`.
//!
//! They see `output` (of a step with one job; null of others), `done` and `failed` (how many jobs of the
//! step ended so). They are compiled before a flow is written, so one that no parser understands is refused;
//! one that cannot be judged later (a field that is not there, a value that is no yes or no) does not hold,
//! and its step says why.
//!
//! They are judged while the store writes, on its one stack. So they are small, and what they cost does not grow with
//! the output but for a look through one list or string: macros that walk over lists (`all`, `exists`, …) are refused.

use std::collections::HashMap;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
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

/// Operators, functions, names and values in one expression, at most.
const PARTS_MAX: usize = 250;
/// How deep they may be nested. A sum of as many terms is as deep.
const DEPTH_MAX: usize = 100;
const NAMES: [&str; 3] = ["output", "done", "failed"];
const FUNCTIONS: [&str; 8] =
    ["size", "contains", "startsWith", "endsWith", "int", "uint", "double", "string"];

/// Says what is wrong with an expression, if anything.
pub fn check(when: &str) -> Result<(), String> {
    compile(when).map(drop)
}

/// An expression that is known to be small, and to name only what there is.
fn compile(when: &str) -> Result<Program, String> {
    let program = Program::compile(when).map_err(|e| one_line(&e.to_string()))?;
    let (mut parts, mut next) = (0, vec![(program.expression(), 1)]);
    // No recursion: what is too deep for a stack is what is looked for.
    while let Some((part, depth)) = next.pop() {
        parts += 1;
        if parts > PARTS_MAX {
            return Err(format!(
                "it has more than {PARTS_MAX} parts; let the step return what is asked"
            ));
        }
        if depth > DEPTH_MAX {
            return Err(format!(
                "it is nested deeper than {DEPTH_MAX}; let the step return what is asked"
            ));
        }
        next.extend(parts_of(part)?.into_iter().map(|part| (part, depth + 1)));
    }
    Ok(program)
}

/// What an expression is made of, if it may be.
fn parts_of(expression: &IdedExpr) -> Result<Vec<&IdedExpr>, String> {
    Ok(match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => Vec::new(),
        Expr::Ident(name) if NAMES.contains(&name.as_str()) => Vec::new(),
        Expr::Ident(name) => {
            return Err(format!("it names {name}, but knows only {}", NAMES.join(", ")));
        }
        Expr::Call(call) if is_function(&call.func_name) => {
            if !FUNCTIONS.contains(&call.func_name.as_str()) {
                let (name, known) = (&call.func_name, FUNCTIONS.join(", "));
                return Err(format!("it calls {name}, but knows only {known} and has"));
            }
            call.target.as_deref().into_iter().chain(&call.args).collect()
        }
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(_) => {
            let why = "it walks over a list (all, exists, exists_one, map, filter), which may be long; \
                       let the step return what is asked, or ask with \"in\" and size()";
            return Err(why.to_owned());
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| of_entry(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Struct(made) => made.entries.iter().flat_map(|entry| of_entry(&entry.expr)).collect(),
    })
}

fn of_entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// Whether a call is that of a function; those of operators are named by signs (`_+_`, `@in`).
fn is_function(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Whether the expression holds; an error says why it cannot be judged.
pub fn holds(when: &str, facts: &Facts) -> Result<bool, String> {
    let program = compile(when)?;
    let mut context = Context::default();
    let output: serde_json::Value = match &facts.output {
        Some(output) => output.read().map_err(|e| e.to_string())?,
        None => serde_json::Value::Null,
    };
    context.add_variable_from_value("output", value(output));
    context.add_variable_from_value("done", facts.done as i64);
    context.add_variable_from_value("failed", facts.failed as i64);
    match program.execute(&context) {
        Ok(Value::Bool(holds)) => Ok(holds),
        Ok(other) => Err(format!("it is neither true nor false but {:?}", other.type_of())),
        Err(error) => Err(one_line(&error.to_string())),
    }
}

/// A value of an output. Whole numbers are of the kind that literals have, so that one can reckon with both: as their
/// library reads them they would not be, unless they are below zero.
fn value(json: serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::Null,
        Json::Bool(is_it) => Value::Bool(is_it),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => Value::Int(number),
            (None, Some(number), _) => Value::UInt(number),
            (None, None, number) => number.map_or(Value::Null, Value::Float),
        },
        Json::String(text) => text.into(),
        Json::Array(items) => items.into_iter().map(value).collect::<Vec<_>>().into(),
        Json::Object(fields) => {
            let fields = fields.into_iter().map(|(name, field)| (name, value(field)));
            fields.collect::<HashMap<_, _>>().into()
        }
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
    fn one_can_reckon_with_numbers_of_outputs() {
        for when in [
            "output.total + 1 > 100 && output.total * 2 > 100 && output.total % 2 == 0 && output.total / 2 == 125",
            "size(output.list) + output.a == 5 && -output.a < 0 && output.a - output.total < 0",
            "output.total - done == 247 && failed + output.a == 4",
            "double(output.total) * 1.19 > 100.0 && output.f * 2.0 > 1.0 && output.list[1] + 1 == 3",
            "output.huge > 9223372036854775807 && output.huge == 18446744073709551615u && output.f > output.a - 3",
            "output.nested.deep[0].n + output.n < 0",
        ] {
            let output = r#"{"total":250,"a":3,"f":0.75,"n":-7,"list":[1,2],"huge":18446744073709551615,
                "nested":{"deep":[{"n":6}]}}"#;
            assert_eq!(holds(when, &facts(output)), Ok(true), "{when}");
        }
        let mixed = holds("output * 1.5 > 1.0", &facts("2"));
        assert!(mixed.is_err(), "as in every other CEL: {mixed:?}");
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

    #[test]
    fn what_could_hold_up_the_store_is_refused() {
        let sum = |terms: usize| format!("{} == {terms}", vec!["1"; terms].join("+"));
        for (when, why) in [
            (sum(2000), "deeper"),
            (format!("output{}", ".a".repeat(150)), "deeper"),
            (format!("done in [{}]", vec!["1"; 300].join(",")), "parts"),
            ("output.all(done, output.all(failed, done == failed))".to_owned(), "walks over"),
            ("output.items.exists(i, i > 3)".to_owned(), "walks over"),
            ("output.items.map(i, i + 1) == [1]".to_owned(), "walks over"),
            ("nosuch(output) > 3".to_owned(), "nosuch"),
            ("output.nosuch()".to_owned(), "nosuch"),
        ] {
            let fault = check(&when).expect_err(&when);
            assert!(fault.contains(why), "{when}: {fault}");
            assert!(holds(&when, &facts("[]")).is_err(), "{when}");
        }
        for (sign, rest) in [("-", "1 == 1"), ("!", "true"), ("(", "1"), ("[", "1"), ("-(", "1")] {
            let when = sign.repeat(4000 / sign.len()) + rest;
            // Refused or not, the stack bears it.
            drop((check(&when), holds(&when, &facts("1"))));
        }
        assert_eq!(check(&sum(90)), Ok(()));
        assert_eq!(holds(&sum(90), &facts("1")), Ok(true));
    }

    #[test]
    fn every_function_that_is_known_can_be_called() {
        for when in [
            "size(output.tags) == 2 && output.tags.size() == 2",
            "output.name.contains('d') && output.name.startsWith('a') && output.name.endsWith('a')",
            "int('7') == 7 && uint(7) == 7u && double(1) == 1.0 && string(done) == '3'",
            "has(output.name) && !has(output.other)",
            "{'a': [1, 2]}['a'][1] == 2 ? 'x' in output.tags : false",
        ] {
            let output = r#"{"tags":["x","y"],"name":"ada"}"#;
            assert_eq!(holds(when, &facts(output)), Ok(true), "{when}");
        }
    }
}
