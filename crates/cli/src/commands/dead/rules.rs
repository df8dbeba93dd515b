//! `tidemill dead rules`: known-recoverable errors that may be replayed without anybody asking.
//!
//! Any worker applies them. A rule has a bound: no job is sent on more often than it allows.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use comfy_table::Cell;
use serde_json::json;
use tidemill::{ErrorClass, RedriveRule};

use crate::app::App;
use crate::duration::{Span, short};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// What to do with rules. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the rules (the default)
    List,
    /// Set a rule by its name
    Set(Set),
    /// Take a rule away
    Delete {
        /// The rule
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct Set {
    /// The name of the rule
    name: String,
    /// Only dead letters of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only dead letters of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only this class of failure
    #[arg(long, value_parser = PossibleValuesParser::new(ErrorClass::ALL.map(ErrorClass::word)))]
    class: Option<String>,
    /// Only when the error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// How long after the death
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    delay: Span,
    /// How often at most for one job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    max: u16,
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or(Verb::List) {
        Verb::List => list(app).await,
        Verb::Set(set) => change(app, set).await,
        Verb::Delete { name } => delete(app, &name).await,
    }
}

async fn list(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let rules = mill.dead().rules().await?;
    mill.close().await;
    if app.json {
        rules.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if rules.is_empty() {
        eprintln!("there are no rules; `tidemill dead rules set NAME` makes one");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["NAME", "KIND", "QUEUE", "CLASS", "ERROR", "AFTER", "MAX"]);
    let any = |word: Option<&str>| word.map_or_else(|| output::quiet("any"), Cell::new);
    for rule in &rules {
        table.add_row([
            Cell::new(&rule.name),
            any(rule.kind.as_deref()),
            any(rule.queue.as_deref()),
            any(rule.class.map(ErrorClass::word)),
            any(rule.error_contains.as_deref()),
            output::right(short(Duration::from_millis(rule.delay_ms))),
            output::number(u64::from(rule.redrives_max)),
        ]);
    }
    output::show(&table);
    Ok(Exit::Ok)
}

async fn change(app: &App, set: Set) -> Outcome {
    let rule = RedriveRule {
        name: set.name,
        kind: set.kind,
        queue: set.queue,
        class: set.class.as_deref().map(ErrorClass::of_word),
        error_contains: set.error,
        delay_ms: set.delay.0.as_millis() as u64,
        redrives_max: set.max,
    };
    let mill = app.open().await?;
    mill.dead().set_rule(rule.clone()).await?;
    mill.close().await;
    if app.json {
        output::json(&rule);
    } else {
        output::line(format!("the rule {} is set", rule.name));
    }
    Ok(Exit::Ok)
}

async fn delete(app: &App, name: &str) -> Outcome {
    let mill = app.open_existing().await?;
    let known = mill.dead().rules().await?.iter().any(|rule| rule.name == name);
    if !known {
        let message = format!("there is no rule {name:?}");
        return Err(Failure::new(Exit::NotFound, "rule_unknown", message)
            .hint("`tidemill dead rules` lists them"));
    }
    mill.dead().delete_rule(name).await?;
    mill.close().await;
    output::did(
        app,
        &json!({ "name": name, "answer": "deleted" }),
        &format!("the rule {name} is gone"),
    );
    Ok(Exit::Ok)
}
