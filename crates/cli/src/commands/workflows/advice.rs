//! What an operator can do next with a run that is parked: the commands, ready to be repeated.

use tidemill::JobId;
use tidemill::core::workflow::ParkCode;

use crate::app::{App, program};
use crate::output::Paint;

/// Says on stderr what there is to do about this.
pub fn parked(app: &App, id: JobId, code: Option<ParkCode>) {
    let call = format!("{} workflows", program());
    let store = app.store_option();
    let mut ways = vec![
        ("mend the code, see that it follows", format!("{call} diff {id} --with 'CMD'{store}")),
        ("and deploy it, then let the run go on", format!("{call} resume {id}{store}")),
        ("or forget what it did from a step on", format!("{call} reset {id} --to STEP{store}")),
        ("or say what came of a step that is stuck", format!("{call} skip {id} STEP{store}")),
        ("or call it off, and undo what it did", format!("{call} cancel {id}{store}")),
    ];
    let own = match code {
        Some(ParkCode::SignalUnreadable) => Some((
            "pass the signal over, and take the next",
            format!("{call} skip {id} SIGNAL{store}"),
        )),
        Some(ParkCode::KeyMissing) => {
            let keys = format!("{} keys list{store}", program());
            Some(("see which keys are needed, and bring it", keys))
        }
        Some(ParkCode::JournalFull) => {
            let resume = format!("{call} resume {id} --journal-entries-max ENTRIES{store}");
            Some(("let it go on with a longer journal", resume))
        }
        _ => None,
    };
    ways.splice(0..0, own);
    for (what, command) in ways {
        eprintln!("{}: {what:<41} {command}", Paint::stderr().cyan("hint"));
    }
}
