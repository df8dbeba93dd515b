//! `tidemill queues wait`: until producers may go on.

use crate::app::App;
use crate::commands::jobs::wait::{Patience, through_outages};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use crate::progress::Late;

/// Waits until the queue is down at its low watermark, at once when it is not above the high one.
pub async fn run(app: &App, queue: &str, patience: Patience) -> Outcome {
    let mill = app.open_existing().await?;
    let below = through_outages(patience, |time| mill.until_below(queue, time));
    let is_below = Late::wait("waiting for the queue").during(below).await?;
    let view = mill.depth(queue).await?;
    mill.close().await;
    let jobs = output::count(view.depth(), "job waits", "jobs wait");
    if !is_below {
        let still = format!("the queue {queue} is not down at its low watermark yet: {jobs} in it");
        let why = format!("`tidemill queues why {queue}` says what holds it");
        return Err(Failure::new(Exit::Timeout, "wait_timeout", still).hint(why));
    }
    if app.json {
        output::json(&view);
    } else {
        eprintln!("{jobs} in {queue}; producers may go on");
    }
    Ok(Exit::Ok)
}
