//! `tidemill migrate`: brings the schema up to date, and says from where to where.
//!
//! Other commands do this by themselves; this one is for deployments that want it to be a step. A server has done it
//! before it serves, so of one it is enough to hear that it serves.

use tidemill::Tidemill;
use tidemill_store::Error as StoreError;

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;
use crate::progress::Late;

/// Migrates the store.
pub async fn run(app: &App) -> Outcome {
    let (from, to) = if app.server.is_some() { (None, None) } else { steps(app.url()).await? };
    let mill = Late::wait("migrating").during(Box::pin(app.open())).await?;
    mill.now().await?;
    mill.close().await;
    if app.json {
        let document = serde_json::json!({ "migrated": from.is_some(), "from": from, "to": to });
        output::json(&document);
        return Ok(Exit::Ok);
    }
    match (from, to) {
        (Some(from), Some(to)) => output::line(format!("migrated from version {from} to {to}")),
        _ => output::line("the schema is up to date"),
    }
    Ok(Exit::Ok)
}

/// From which version to which the schema of a store is about to go; neither if it is up to date.
async fn steps(url: &str) -> Outcome<(Option<i64>, Option<i64>)> {
    match Tidemill::builder().migrate(false).open(url).await {
        Ok(mill) => {
            mill.close().await;
            Ok((None, None))
        }
        Err(tidemill::Error::Store(StoreError::SchemaOlder { found, known })) => {
            Ok((Some(found), Some(known)))
        }
        Err(error) => Err(error.into()),
    }
}
