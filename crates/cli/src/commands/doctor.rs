//! `tidemill doctor`: looks at the health of the store and says what to do.
//!
//! It changes nothing, and it ends with 1 when something is not as it should be.

use comfy_table::{Cell, Color};
use tidemill_store::view::Finding;

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;
use crate::progress::Late;

/// Examines the store.
pub async fn run(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let findings = Late::wait("examining").during(mill.examine()).await?;
    mill.close().await;
    if app.json {
        findings.iter().for_each(output::json);
    } else {
        show(&findings);
    }
    let healthy = findings.iter().all(|finding| finding.ok);
    Ok(if healthy { Exit::Ok } else { Exit::Failed })
}

fn show(findings: &[Finding]) {
    let mut table = output::table(&["", "LOOKED AT", "FOUND"]);
    for finding in findings {
        let mark = if finding.ok {
            Cell::new("✓").fg(Color::Green)
        } else {
            Cell::new("✗").fg(Color::Red)
        };
        table.add_row([mark, Cell::new(&finding.what), Cell::new(&finding.found)]);
    }
    output::show(&table);
    let ill: Vec<_> = findings.iter().filter(|finding| !finding.ok).collect();
    let paint = output::Paint::stderr();
    for hint in ill.iter().filter_map(|finding| Some((&finding.what, finding.hint.as_ref()?))) {
        eprintln!("{}: {}: {}", paint.cyan("hint"), hint.0, hint.1);
    }
    match ill.len() {
        0 => eprintln!("{}", paint.green("all is well")),
        n => eprintln!("{}", paint.red(&output::count(n as u64, "finding", "findings"))),
    }
}
