//! How a picture is drawn: queues above, workers and what died below, alerts at the foot.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

use super::picture::{Picture, QueueLine, WorkerLine};
use crate::duration::short;
use crate::output::{count, first_line, grouped};

/// Alerts that are shown.
const ALERTS_MAX: usize = 4;

/// Draws a picture, if there is one yet, and says what is wrong with looking.
pub fn draw(frame: &mut Frame<'_>, picture: Option<&Picture>, trouble: Option<&str>) {
    let Some(picture) = picture else {
        let text = trouble.unwrap_or("looking…");
        return frame.render_widget(Paragraph::new(text), frame.area());
    };
    let alerts = picture.alerts.len().min(ALERTS_MAX) + usize::from(trouble.is_some());
    let [head, queues, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Percentage(40),
        Constraint::Length(alerts as u16),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_line(picture)), head);
    draw_queues(frame, queues, &picture.queues);
    let halves = [Constraint::Percentage(40), Constraint::Percentage(60)];
    let [workers, dead] = Layout::horizontal(halves).areas(below);
    draw_workers(frame, workers, &picture.workers);
    draw_dead(frame, dead, picture);
    let red = Style::new().fg(Color::Red);
    let said = picture.alerts.iter().take(ALERTS_MAX).map(|alert| format!("! {alert}"));
    let said = said.chain(trouble.map(|trouble| format!("! {trouble}")));
    let lines: Vec<Line<'_>> = said.map(|text| Line::styled(text, red)).collect();
    frame.render_widget(Paragraph::new(lines), foot);
}

fn head_line(picture: &Picture) -> String {
    let Picture { at, store, queues, workers, .. } = picture;
    let sum = |of: fn(&QueueLine) -> u64| grouped(queues.iter().map(of).sum());
    let slots: u64 = workers.iter().map(|worker| u64::from(worker.slots)).sum();
    format!(
        "tidemill on {store}  {}  ready {}  running {} of {slots} slots  dead {}  q quits",
        at.strftime("%H:%M:%S"),
        sum(|queue| queue.ready),
        sum(|queue| queue.running),
        sum(|queue| queue.dead),
    )
}

fn titled(title: String) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(title)
}

fn header(names: &'static [&'static str]) -> Row<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Row::new(names.iter().map(|name| right(*name))).style(bold)
}

/// Numbers stand to the right; the first column is a name.
fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::new(Line::from(text.into()).right_aligned())
}

fn ms(time: Option<u64>) -> String {
    time.map_or_else(|| "-".to_owned(), |ms| short(Duration::from_millis(ms)).to_string())
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, queues: &[QueueLine]) {
    let row = |queue: &QueueLine| {
        let name =
            if queue.paused { format!("{} (paused)", queue.name) } else { queue.name.clone() };
        let rate = |of: f64| format!("{of:.1}");
        let (come, go) =
            queue.rates.map(|rates| (rate(rates.in_per_s), rate(rates.out_per_s))).unzip();
        let dash = || "-".to_owned();
        let dead = right(grouped(queue.dead));
        let dead = if queue.dead > 0 { dead.style(Style::new().fg(Color::Red)) } else { dead };
        Row::new([
            Cell::new(name),
            right(grouped(queue.ready)),
            right(grouped(queue.scheduled)),
            right(grouped(queue.running)),
            dead,
            right(come.unwrap_or_else(dash)),
            right(go.unwrap_or_else(dash)),
            right(ms(queue.oldest_ms)),
            right(ms(queue.p50_ms)),
            right(ms(queue.p95_ms)),
        ])
    };
    let names = &["", "READY", "LATER", "RUNNING", "DEAD", "IN/S", "OUT/S", "OLDEST", "P50", "P95"];
    let widths = [Constraint::Min(10)].into_iter().chain([Constraint::Length(8); 9]);
    let title = count(queues.len() as u64, "queue", "queues");
    let table = Table::new(queues.iter().map(row), widths).header(header(names));
    frame.render_widget(table.block(titled(title)), area);
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, workers: &[WorkerLine]) {
    let row = |worker: &WorkerLine| {
        Row::new([
            Cell::new(worker.name.clone()),
            right(worker.slots.to_string()),
            right(ms(Some(worker.beat_ms))),
            Cell::new(worker.queues.join(" ")),
        ])
    };
    let widths = [
        Constraint::Min(8),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Percentage(40),
    ];
    let title = count(workers.len() as u64, "worker", "workers");
    let table = Table::new(workers.iter().map(row), widths);
    let table = table.header(header(&["", "SLOTS", "BEAT", ""]));
    frame.render_widget(table.block(titled(title)), area);
}

fn draw_dead(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let rows = picture.dead.iter().map(|group| {
        Row::new([
            right(grouped(group.count)),
            Cell::new(group.kind.clone()),
            Cell::new(first_line(&group.error, 200)),
        ])
    });
    let widths = [Constraint::Length(6), Constraint::Percentage(30), Constraint::Min(10)];
    let groups: u64 = picture.dead.len() as u64;
    let title = format!("what died: {}", count(groups, "group", "groups"));
    let table = Table::new(rows, widths);
    frame.render_widget(table.block(titled(title)), area);
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tidemill::core::depth::Rates;
    use tidemill::store::DeadGroup;
    use tidemill::{Alert, AlertKind, ErrorClass, JobId};

    use super::super::lines;
    use super::*;

    fn picture() -> Picture {
        let at: Timestamp = "2026-01-01T12:34:56Z".parse().unwrap();
        let mail = QueueLine {
            name: "mail".into(),
            paused: false,
            ready: 12_345,
            scheduled: 7,
            running: 8,
            dead: 3,
            rates: Some(Rates { in_per_s: 120.5, out_per_s: 99.9 }),
            oldest_ms: Some(61_000),
            p50_ms: Some(12),
            p95_ms: Some(480),
        };
        let idle = QueueLine {
            name: "idle".into(),
            paused: true,
            ready: 0,
            scheduled: 0,
            running: 0,
            dead: 0,
            rates: None,
            oldest_ms: None,
            p50_ms: None,
            p95_ms: None,
        };
        let worker = WorkerLine {
            name: "host-1".into(),
            slots: 16,
            queues: vec!["mail".into(), "idle".into()],
            beat_ms: 900,
        };
        let dead = DeadGroup {
            fingerprint: "f".into(),
            kind: "send".into(),
            class: ErrorClass::Permanent,
            error: "no such address\nmore".into(),
            count: 3,
            new: 3,
            first_at: at,
            last_at: at,
            sample: JobId::new(),
        };
        let alert = Alert {
            alert: AlertKind::NoWorker,
            queue: Some("mail".into()),
            kind: Some("resize".into()),
            value: 1.0,
            threshold: 1.0,
            since: None,
        };
        let (queues, workers) = (vec![mail, idle], vec![worker]);
        Picture {
            at,
            store: "sqlite".into(),
            queues,
            workers,
            dead: vec![dead],
            alerts: vec![alert],
        }
    }

    #[test]
    fn a_picture_is_drawn_as_people_read_it() {
        let drawn = lines(&picture(), 110, 14).join("\n");
        let expected = include_str!("picture.txt").trim_end();
        assert_eq!(drawn, expected, "\n{drawn}\n");
    }

    #[test]
    fn it_fits_terminals_of_every_size() {
        for (width, height) in [(1, 1), (20, 5), (40, 10), (80, 24), (300, 100)] {
            let drawn = lines(&picture(), width, height);
            assert!(drawn.len() <= usize::from(height));
            if width >= 40 {
                assert!(drawn[0].starts_with("tidemill on sqlite"), "{width}×{height} {drawn:?}");
            }
        }
    }
}
