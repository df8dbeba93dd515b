//! The alert rules and the Grafana board in `ops/` speak of what is really shown.

use std::collections::BTreeSet;

use serde_json::Value;
use tidemill::METRICS;

const RULES: &str = include_str!("../../../../ops/alerts.yml");
const BOARD: &str = include_str!("../../../../ops/dashboard.json");
/// Those that Prometheus adds.
const EVERYWHERE: [&str; 3] = ["le", "instance", "job"];

/// The expressions of the rules: each stands on a line of its own.
fn rules() -> Vec<String> {
    let exprs = RULES.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    exprs.map(str::to_owned).collect()
}

/// The expressions of the board, wherever they stand.
fn panels(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| panels(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| panels(value, found)),
        _ => {}
    }
}

fn is_word(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || sign == '_'
}

/// The metrics that an expression names, each with the labels that are asked of it.
fn named(expr: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found = Vec::new();
    for (at, _) in expr.match_indices("tidemill_") {
        let rest = &expr[at..];
        let name = &rest[..rest.find(|sign| !is_word(sign)).unwrap_or(rest.len())];
        let asked = rest[name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = asked.map_or_else(Vec::new, |(asked, _)| {
            asked.split(',').map(|one| one.split(['=', '!']).next().unwrap().trim()).collect()
        });
        found.push((name, labels));
    }
    found
}

/// The labels that an expression keeps.
fn kept(expr: &str) -> Vec<&str> {
    let lists = expr.split("by (").skip(1).chain(expr.split("on (").skip(1));
    let lists = lists.filter_map(|rest| rest.split_once(')'));
    lists.flat_map(|(list, _)| list.split(',').map(str::trim)).collect()
}

#[test]
fn rules_and_board_name_metrics_and_labels_that_exist() {
    let board: Value = serde_json::from_str(BOARD).unwrap();
    let mut exprs = rules();
    let (of_rules, alerts) = (exprs.len(), RULES.matches("- alert: ").count());
    assert!(of_rules == alerts && alerts > 10, "every rule has one expression on one line");
    panels(&board, &mut exprs);
    assert!(exprs.len() > of_rules + 20, "the board has panels");
    let mut used = BTreeSet::new();
    for expr in &exprs {
        let mut labels: BTreeSet<&str> = EVERYWHERE.into();
        for (name, asked) in named(expr) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let metric = METRICS
                .iter()
                .find(|m| m.name == name || (base == Some(m.name) && m.form.word() == "histogram"))
                .unwrap_or_else(|| panic!("there is no {name}: {expr}"));
            for label in asked {
                assert!(metric.labels.contains(&label), "{name} has no {label}: {expr}");
            }
            labels.extend(metric.labels);
            used.insert(metric.name);
        }
        for label in kept(expr) {
            assert!(labels.contains(label), "nothing here has {label}: {expr}");
        }
        let balance = |open, close| expr.matches(open).count() == expr.matches(close).count();
        assert!(balance('(', ')') && balance('{', '}') && balance('[', ']'), "{expr}");
    }
    assert!(used.len() > 30, "{used:?}");
}

#[test]
fn rules_have_their_parts() {
    let rules: Vec<&str> = RULES.split("- alert: ").skip(1).collect();
    let mut names = BTreeSet::new();
    for rule in &rules {
        let name = rule.lines().next().unwrap().trim();
        assert!(name.starts_with("Tidemill") && names.insert(name), "{name}");
        for part in ["expr: ", "severity: ", "summary: "] {
            assert_eq!(rule.matches(part).count(), 1, "{name} {part}");
        }
    }
}
