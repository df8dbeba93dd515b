//! Where a program looks for runs: told by its environment, and seen from what it says of which runs.
//!
//! A program may have its own mind about that: one that knows no server opens a store, and one with a configuration of
//! its own reads that. What it says of the runs of another place must not pass for an answer.

use std::collections::BTreeMap;

use tidemill::{JobId, RunReplay};
use tokio::process::Command;

use super::program::Said;
use crate::app::App;
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;

/// So many of the runs that a program speaks of are looked for here, before it is believed to speak of others.
const SPOKEN_MAX: usize = 3;

/// Tells a program where to look, by the variables that this one reads: a secret stands on no command line.
pub fn tell(app: &App, program: &mut Command) -> Outcome<()> {
    let Some(server) = &app.server else {
        program.env("TIDEMILL_STORE", app.url()).env_remove("TIDEMILL_SERVER");
        return Ok(());
    };
    program.env("TIDEMILL_SERVER", &server.url).env_remove("TIDEMILL_STORE");
    match server.token()? {
        Some(secret) => program.env("TIDEMILL_TOKEN", secret.trim()),
        None => program.env_remove("TIDEMILL_TOKEN"),
    };
    if let Some(file) = &server.ca_file {
        program.env("TIDEMILL_CA_FILE", std::path::absolute(file)?);
    }
    Ok(())
}

/// What a program must do to look there.
pub fn advice(app: &App) -> &'static str {
    match app.server {
        Some(_) => {
            "its workers must be of the server of TIDEMILL_SERVER (Client::from_env); a program that opens a store is \
             held against that: --store"
        }
        None => "it must come to Worker::run or Worker::start, with the store of TIDEMILL_STORE",
    }
}

/// Refuses what was said of the runs of another place. Ids are nobody else's, so one run that is known here is enough;
/// to speak of none is right only if all that were under way have ended meanwhile.
pub async fn refuse_other(
    app: &App,
    mill: &Mill,
    said: &Said,
    under_way: &BTreeMap<JobId, String>,
) -> Outcome<()> {
    if said.replays.iter().any(|replay| under_way.contains_key(&replay.run)) {
        return Ok(());
    }
    if let Some(RunReplay { run, .. }) = said.replays.first() {
        for replay in said.replays.iter().take(SPOKEN_MAX) {
            if mill.run(replay.run).await?.is_some() {
                return Ok(());
            }
        }
        return Err(other(app, &format!("it speaks of {run}, which is not there")));
    }
    for (id, _) in under_way.iter().filter(|(_, kind)| said.kinds.contains(*kind)) {
        let waits = mill.run(*id).await?.is_some_and(|run| run.waits.is_some());
        if waits && mill.job(*id).await?.is_some_and(|view| !view.state.is_final()) {
            return Err(other(app, &format!("it has a handler for {id}, and says nothing of it")));
        }
    }
    Ok(())
}

/// Refuses silence about the one run that was asked for, of a kind that the program has a handler for.
pub fn refuse_silence(app: &App, said: &Said, id: JobId, kind: &str) -> Outcome<()> {
    if said.kinds.contains(kind) && !said.replays.iter().any(|replay| replay.run == id) {
        return Err(other(app, &format!("it has a handler for {id}, and says nothing of it")));
    }
    Ok(())
}

fn other(app: &App, seen: &str) -> Failure {
    let message = format!("the program did not look at the runs of {}: {seen}", app.place());
    Failure::new(Exit::Failed, "replay_elsewhere", message).hint(advice(app))
}
