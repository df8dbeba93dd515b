//! `tidemill schedules show`: one schedule, what comes next, what was last.

use std::time::Duration;

use tidemill::Timestamp;
use tidemill_store::ScheduleView;

use crate::app::App;
use crate::commands::schedules::list::rule;
use crate::commands::schedules::{history, preview};
use crate::duration::{relative, short};
use crate::exit::{Exit, Outcome};
use crate::output;

const SLOTS: usize = 5;

/// Shows it.
pub async fn run(app: &App, name: &str) -> Outcome {
    let mill = app.open_existing().await?;
    let schedules = mill.schedules();
    let view = schedules.get(name).await?;
    let coming = schedules.preview(name, SLOTS).await?;
    let entries = schedules.history(name, SLOTS).await?;
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        output::json(&serde_json::json!({
            "schedule": view, "coming": coming, "history": entries,
        }));
        return Ok(Exit::Ok);
    }
    for (what, value) in lines(&view, now) {
        output::line(format!("{what:<10} {value}"));
    }
    if !coming.is_empty() {
        output::line("");
        preview::show(&coming, now);
    }
    if !entries.is_empty() {
        output::line("");
        history::show(&entries, now);
    }
    Ok(Exit::Ok)
}

fn lines(view: &ScheduleView, now: Timestamp) -> Vec<(&'static str, String)> {
    let definition = &view.definition;
    let ms = |ms| short(Duration::from_millis(ms)).to_string();
    let next = match view.next_at {
        _ if view.paused => "paused".to_owned(),
        Some(next) => format!("{next} ({})", relative(next, now)),
        None => "over".to_owned(),
    };
    let job = &definition.job;
    let mut lines = vec![
        ("schedule", definition.name.clone()),
        ("owner", definition.owner.clone()),
        ("rule", format!("{} in {}", rule(&definition.rule), definition.zone)),
        ("next", next),
        ("job", format!("{} in queue {}", job.kind, job.queue)),
        ("payload", output::first_line(job.payload.as_str(), 80)),
        ("missed", format!("{}, after {}", definition.missed, ms(definition.grace_ms))),
        ("overlap", definition.overlap.word().to_owned()),
        ("version", format!("{}, of {}", view.version, view.changed_at)),
    ];
    lines.extend(definition.start_at.map(|at| ("starts", at.to_string())));
    lines.extend(definition.end_at.map(|at| ("ends", at.to_string())));
    if definition.jitter_ms > 0 {
        lines.push(("jitter", ms(definition.jitter_ms)));
    }
    if let Some(spread) = &definition.spread {
        let keys = match spread.keys.len() as u64 {
            0 => String::new(),
            n => format!(", {}", output::count(n, "key", "keys")),
        };
        lines.push(("spread", format!("over {}{keys}", ms(spread.window_ms))));
    }
    if !definition.except.is_empty() {
        let dates: Vec<_> = definition.except.iter().map(ToString::to_string).collect();
        lines.push(("except", dates.join(" ")));
    }
    lines
}
