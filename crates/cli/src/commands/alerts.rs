//! `tidemill alerts`: what somebody should look at, by one look at the store.
//!
//! It ends with 1 when something is, so that a script can ask.

use comfy_table::{Cell, Color};

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Shows the alerts that hold.
pub async fn run(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let alerts = mill.alerts().await?;
    mill.close().await;
    if app.json {
        alerts.iter().for_each(output::json);
    } else if alerts.is_empty() {
        eprintln!("{}", output::Paint::stderr().green("no alert holds"));
    } else {
        let mut table = output::table(&["ALERT", "QUEUE", "WHAT"]);
        for alert in &alerts {
            table.add_row([
                Cell::new(alert.alert.word()).fg(Color::Red),
                Cell::new(alert.queue.as_deref().unwrap_or("all")),
                Cell::new(alert),
            ]);
        }
        output::show(&table);
    }
    Ok(if alerts.is_empty() { Exit::Ok } else { Exit::Failed })
}
