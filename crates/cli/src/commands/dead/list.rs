//! `tidemill dead list`, `groups` and `sample`: many dead letters at a glance.

use comfy_table::Cell;
use tidemill::{DeadPlace, Timestamp};
use tidemill_store::{DeadGroup, DeadLetter};

use super::target::Filter;
use crate::app::{App, program};
use crate::duration::relative;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Which dead letters, and which page of them.
#[derive(Debug, clap::Args)]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Those behind this one: the place that the page before ended at
    #[arg(long, value_name = "PLACE")]
    before: Option<DeadPlace>,
}

impl Default for List {
    fn default() -> Self {
        Self { filter: Filter::default(), limit: 50, before: None }
    }
}

/// Which dead letters to group.
#[derive(Debug, clap::Args)]
pub struct Groups {
    #[command(flatten)]
    filter: Filter,
}

/// How many to draw from which.
#[derive(Debug, clap::Args)]
pub struct Sample {
    #[command(flatten)]
    filter: Filter,
    /// How many
    #[arg(short, long = "number", value_name = "N", default_value_t = 5)]
    number: usize,
}

/// A page of them.
pub async fn list(app: &App, args: List) -> Outcome {
    let mill = app.open_existing().await?;
    let filter = args.filter.resolve(&mill).await?;
    let letters = mill.dead().list(&filter, args.before, args.limit).await?;
    let now = mill.now().await?;
    mill.close().await;
    show(app, &letters, now);
    let last = letters.last().filter(|_| !app.json && letters.len() == args.limit);
    if let Some(last) = last {
        let hint = format!("the next page: --before {}", last.place());
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}

/// Some of them.
pub async fn sample(app: &App, args: Sample) -> Outcome {
    let mill = app.open_existing().await?;
    let filter = args.filter.resolve(&mill).await?;
    let letters = mill.dead().sample(&filter, args.number).await?;
    let now = mill.now().await?;
    mill.close().await;
    show(app, &letters, now);
    Ok(Exit::Ok)
}

/// How many died of what.
pub async fn groups(app: &App, args: Groups) -> Outcome {
    let mill = app.open_existing().await?;
    let filter = args.filter.resolve(&mill).await?;
    let groups = mill.dead().groups(&filter).await?;
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        groups.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if groups.is_empty() {
        eprintln!("no dead letter matches");
        return Ok(Exit::Ok);
    }
    let mut table =
        output::table(&["FINGERPRINT", "DEAD", "NEW", "KIND", "CLASS", "LAST", "FIRST", "ERROR"]);
    for group in &groups {
        table.add_row(group_row(group, now));
    }
    output::show_clipped(&mut table);
    if let Some(first) = groups.first() {
        let (program, store) = (program(), app.store_option());
        let hint = format!(
            "look at one:  {program} dead show {}{store}\n\
             send them on: {program} dead replay --fingerprint {}{store}",
            first.sample, first.fingerprint
        );
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}

fn group_row(group: &DeadGroup, now: Timestamp) -> [Cell; 8] {
    [
        Cell::new(&group.fingerprint),
        output::number(group.count),
        output::bad_number(group.new),
        Cell::new(&group.kind),
        Cell::new(group.class.word()),
        Cell::new(relative(group.last_at, now)),
        Cell::new(relative(group.first_at, now)),
        Cell::new(output::first_line(&group.error, 70)),
    ]
}

fn show(app: &App, letters: &[DeadLetter], now: Timestamp) {
    if app.json {
        return letters.iter().for_each(output::json);
    }
    if letters.is_empty() {
        return eprintln!("no dead letter matches");
    }
    let mut table =
        output::table(&["ID", "KIND", "QUEUE", "TRIAGE", "ATTEMPTS", "DIED", "NOTES", "ERROR"]);
    for letter in letters {
        table.add_row([
            Cell::new(letter.id),
            Cell::new(&letter.kind),
            Cell::new(&letter.queue),
            if letter.recovered { Cell::new("recovered") } else { output::triage(letter.triage) },
            output::number(u64::from(letter.attempt)),
            Cell::new(relative(letter.died_at, now)),
            output::number(letter.notes.len() as u64),
            Cell::new(output::first_line(&letter.error, 60)),
        ]);
    }
    output::show_clipped(&mut table);
}
