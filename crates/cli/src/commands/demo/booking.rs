//! A booking whose card is declined: what was booked before it is given back, in reverse, to be watched.

use std::time::Duration;

use tidemill::{Enqueue, Fail, Flow, Settings, Worker};

use crate::app::App;
use crate::commands::flows;
use crate::exit::Outcome;
use crate::mill::Mill;
use crate::output;

const BOOKS: [&str; 3] = ["hotel", "flight", "car"];
const LONG: Duration = Duration::from_secs(30);
/// Slow enough to be seen.
const PACE: Duration = Duration::from_millis(250);

/// Gives a worker the handlers of a booking.
pub fn all(worker: Worker) -> Worker {
    let slowly = |worker: Worker, kind: &str| {
        worker.handle_raw(kind, Settings::default(), |payload, _| async move {
            tokio::time::sleep(PACE).await;
            Ok(payload)
        })
    };
    let worker = ["book", "give_back", "send_tickets"].into_iter().fold(worker, slowly);
    worker.handle_raw("charge_card", Settings::default(), |_, _| async {
        tokio::time::sleep(PACE).await;
        Err(Fail::permanent("the card was declined"))
    })
}

/// Starts the saga, and shows it until it is undone.
pub async fn run(app: &App, mill: &Mill) -> Outcome<()> {
    let id = mill.start(saga()).await?;
    if app.json {
        mill.wait_flow(id, LONG).await?;
        return Ok(());
    }
    output::line("\nA booking whose card is declined; what was booked is given back:\n");
    flows::follow(app, mill, id).await?;
    output::line("");
    Ok(())
}

fn saga() -> Flow {
    let job = |kind: &str, what: &str| Enqueue::raw(kind, format!(r#"{{"what":"{what}"}}"#));
    let booked = BOOKS.iter().fold(Flow::saga("booking"), |saga, what| {
        saga.then(*what, job("book", what)).undo(job("give_back", what))
    });
    booked
        .then("card", job("charge_card", "all"))
        .pivot()
        .then("tickets", job("send_tickets", "all"))
}
