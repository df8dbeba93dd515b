//! What an operator can do next with a run that is parked: the commands, ready to be repeated.

use tidemill::JobId;

use crate::app::{App, program};
use crate::output::Paint;

/// Says on stderr what there is to do.
pub fn parked(app: &App, id: JobId) {
    let call = format!("{} workflows", program());
    let store = app.store_option();
    let ways = [
        ("mend the code, see that it follows", format!("{call} diff {id} --with 'CMD'{store}")),
        ("and deploy it, then let the run go on", format!("{call} resume {id}{store}")),
        ("or forget what it did from a step on", format!("{call} reset {id} --to STEP{store}")),
        ("or say what came of a step that is stuck", format!("{call} skip {id} STEP{store}")),
        ("or call it off, and undo what it did", format!("{call} cancel {id}{store}")),
    ];
    for (what, command) in ways {
        eprintln!("{}: {what:<41} {command}", Paint::stderr().cyan("hint"));
    }
}
