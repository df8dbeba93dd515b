//! `tidemill audit`: who did what to what, and what became of it.

use comfy_table::Cell;
use tidemill::audit::AuditFilter;
use tidemill_core::AuditId;

use crate::app::App;
use crate::duration::{Moment, relative};
use crate::exit::{Exit, Outcome};
use crate::output;

/// Which acts, and which page of them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Done by this one: the name of a token, anonymous, or cli:USER
    #[arg(long)]
    who: Option<String>,
    /// This act: the name of an operation (cancel_job) or of a command ('jobs cancel')
    #[arg(long)]
    act: Option<String>,
    /// Done to this one: an id or a name
    #[arg(long)]
    target: Option<String>,
    /// At this time or later; `2h` means two hours ago
    #[arg(long, value_name = "MOMENT")]
    since: Option<Moment>,
    /// Before this time; `2h` means two hours ago
    #[arg(long, value_name = "MOMENT")]
    until: Option<Moment>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Before this act: the last one of the page before
    #[arg(long, value_name = "ID")]
    before: Option<AuditId>,
}

/// Shows them, newest first.
pub async fn run(app: &App, args: Args) -> Outcome {
    let mill = app.open_existing().await?;
    let now = mill.now().await?;
    let Args { who, act, target, since, until, limit, before } = args;
    let (since, until) =
        (since.map(|moment| moment.resolve(now)), until.map(|moment| moment.resolve(now)));
    let filter = AuditFilter { who, act, target, since, until, before, limit };
    let acts = mill.audit().list(&filter).await?;
    mill.close().await;
    if app.json {
        acts.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if acts.is_empty() {
        eprintln!("no act matches");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["WHEN", "WHO", "ACT", "TARGET", "RESULT", "DETAIL"]);
    for act in &acts {
        table.add_row([
            Cell::new(relative(act.at, now)),
            Cell::new(&act.who),
            Cell::new(&act.act),
            Cell::new(format!("{} {}", act.target_kind, act.target).trim()),
            act.result.as_ref().map_or_else(|| output::quiet("unknown"), Cell::new),
            Cell::new(output::first_line(&act.detail, 60)),
        ]);
    }
    output::show_clipped(&mut table);
    if let Some(last) = acts.last().filter(|_| acts.len() == limit) {
        let hint = format!("the next page: --before {}", last.id);
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}
