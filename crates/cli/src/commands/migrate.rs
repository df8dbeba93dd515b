//! `tidemill migrate`: brings the schema up to date, and says from where to where.
//!
//! Other commands do this by themselves; this one is for deployments that want it to be a step.

use tidemill::Tidemill;
use tidemill_store::Error as StoreError;

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;
use crate::progress::Late;

const WHY_STORE: &str = "a schema is changed in the database";

/// Migrates the store.
pub async fn run(app: &App) -> Outcome {
    app.refuse_server(WHY_STORE)?;
    let (from, to) = match Tidemill::builder().migrate(false).open(app.url()).await {
        Ok(mill) => {
            mill.close().await;
            (None, None)
        }
        Err(tidemill::Error::Store(StoreError::SchemaOlder { found, known })) => {
            (Some(found), Some(known))
        }
        Err(error) => return Err(error.into()),
    };
    let mill = Late::wait("migrating").during(app.open_store(WHY_STORE)).await?;
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
