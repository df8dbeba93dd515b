//! `tidemill workflows update` and `object`: what a run answers, and what an object is.

use tidemill::ObjectKey;

use super::act::{Signal, json_of};
use crate::app::App;
use crate::commands::jobs::wait::Patience;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use crate::progress::Late;

/// What to send, to whom, and how long to wait for the answer.
#[derive(Debug, clap::Args)]
pub struct Update {
    #[command(flatten)]
    signal: Signal,
    #[command(flatten)]
    patience: Patience,
}

/// Which object.
#[derive(Debug, clap::Args)]
pub struct Object {
    /// Its name, which is that of its queue
    name: String,
    /// Its key
    key: String,
    /// The tenant of its jobs [default: none, or that of the token]
    #[arg(long)]
    tenant: Option<String>,
}

/// Sends it and prints the answer.
pub async fn update(app: &App, args: Update) -> Outcome {
    let Update { signal: Signal { id, name, payload, once }, patience } = args;
    let mut signal = tidemill::Signal::new(name, &json_of(&payload)?);
    if let Some(once) = once {
        signal = signal.id(once);
    }
    let mill = app.open_existing().await?;
    let updating = mill.update(id, signal, patience.limit());
    let answer = Late::wait("waiting for the answer").during(updating).await?;
    mill.close().await;
    output::line(output::shown(answer.get()));
    Ok(Exit::Ok)
}

/// Prints what an object is.
pub async fn object(app: &App, Object { name, key, tenant }: Object) -> Outcome {
    let mill = app.open_existing().await?;
    let meant = ObjectKey::new(&key).tenant(tenant.as_deref());
    let state = mill.object(&name, meant).await?;
    mill.close().await;
    let Some(state) = state else {
        let whose = tenant.map(|tenant| format!(" of the tenant {tenant:?}")).unwrap_or_default();
        let message = format!("nothing is kept of the object {key:?} of {name:?}{whose}");
        return Err(Failure::new(Exit::NotFound, "object_unknown", message));
    };
    output::line(output::shown(state.get()));
    Ok(Exit::Ok)
}
