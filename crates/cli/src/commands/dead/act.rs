//! `tidemill dead note`, `investigate`, `abandon` and `archive`: what people make of dead letters.
//!
//! Each act is recorded on the dead letter as a note: who, when and why.

use tidemill::{DeadFilter, JobId, Tidemill, Triage};

use super::target::Target;
use crate::app::{App, whoami};
use crate::exit::{Exit, Outcome};
use crate::output;

const PAGE: usize = 1000;

/// A note on some.
#[derive(Debug, clap::Args)]
pub struct Note {
    #[command(flatten)]
    target: Target,
    /// What to note
    #[arg(long, short)]
    message: String,
    /// Who notes it [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// An act on some, with its reason.
#[derive(Debug, clap::Args)]
pub struct Act {
    #[command(flatten)]
    target: Target,
    /// Why
    #[arg(long, short, default_value = "no reason given")]
    message: String,
    /// Who does it [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Notes it.
pub async fn note(app: &App, args: Note) -> Outcome {
    let by = args.by.unwrap_or_else(whoami);
    each_page(app, args.target, "note", "noted", async |mill, ids| {
        Ok(mill.dead().note(&ids, &by, &args.message).await?)
    })
    .await
}

/// Marks them as looked at.
pub async fn investigate(app: &App, args: Act) -> Outcome {
    triage(app, args, "investigate", Triage::Investigated).await
}

/// Marks them as not to be retried.
pub async fn abandon(app: &App, args: Act) -> Outcome {
    triage(app, args, "abandon", Triage::Abandoned).await
}

/// Puts them aside.
pub async fn archive(app: &App, args: Act) -> Outcome {
    let by = args.by.unwrap_or_else(whoami);
    each_page(app, args.target, "archive", "archived", async |mill, ids| {
        Ok(mill.dead().archive(&ids, &by, &args.message).await?)
    })
    .await
}

async fn triage(app: &App, args: Act, verb: &str, to: Triage) -> Outcome {
    let by = args.by.unwrap_or_else(whoami);
    each_page(app, args.target, verb, to.word(), async |mill, ids| {
        Ok(mill.dead().triage(&ids, to, &by, &args.message).await?)
    })
    .await
}

/// Acts on all that are meant. They are listed first: an act may take them out of the filter.
async fn each_page(
    app: &App,
    target: Target,
    verb: &str,
    done: &str,
    act: impl AsyncFn(&Tidemill, Vec<JobId>) -> Outcome<u64>,
) -> Outcome {
    let mill = app.open_existing().await?;
    let Some(filter) = target.settle(&mill, verb).await? else { return Ok(Exit::Ok) };
    let ids = matching(&mill, &filter).await?;
    let mut letters = 0;
    for page in ids.chunks(PAGE) {
        letters += act(&mill, page.to_vec()).await?;
    }
    mill.close().await;
    if app.json {
        output::json(&serde_json::json!({ done: letters }));
    } else {
        output::line(format!("{done} {}", output::count(letters, "dead letter", "dead letters")));
    }
    Ok(Exit::Ok)
}

async fn matching(mill: &Tidemill, filter: &DeadFilter) -> Outcome<Vec<JobId>> {
    let mut ids = Vec::new();
    loop {
        let letters = mill.dead().list(filter, ids.len(), PAGE).await?;
        let full = letters.len() == PAGE;
        ids.extend(letters.into_iter().map(|letter| letter.id));
        if !full {
            return Ok(ids);
        }
    }
}
