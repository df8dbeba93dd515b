//! `tidemill top`: queues, rates, latencies, workers and what died, live in the terminal.
//!
//! What is shown is a `Picture`, which a `Source` takes; how it is shown is `draw`. So another source than a store can
//! feed it. It refuses to ask more often than twice a second.

mod draw;
mod picture;

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use crate::app::{App, interrupted};
use crate::duration::Span;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use draw::draw;
use picture::{OfMill, Picture, Source};

const EVERY_MIN: Duration = Duration::from_millis(500);
/// The size of one that is printed.
const PRINTED: (u16, u16) = (110, 40);

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    every: Span,
    /// Print one look and end; with --json as one document
    #[arg(long)]
    once: bool,
}

/// Shows it until q is pressed.
pub async fn run(app: &App, args: Args) -> Outcome {
    let mill = app.open_existing().await?;
    let mut source = OfMill::new(mill.clone());
    let shown = if args.once || app.json {
        source.look().await.map(|picture| print(app, &picture))
    } else if std::io::stdout().is_terminal() {
        live(&mut source, args.every.0.max(EVERY_MIN)).await
    } else {
        Err(Failure::usage("top needs a terminal")
            .hint("--once prints one look, --json a document"))
    };
    mill.close().await;
    shown.map(|()| Exit::Ok)
}

fn print(app: &App, picture: &Picture) {
    if app.json {
        return output::json(picture);
    }
    for line in lines(picture, PRINTED.0, PRINTED.1) {
        output::line(line);
    }
}

/// One look as lines of text, without empty ones at the end.
fn lines(picture: &Picture, width: u16, height: u16) -> Vec<String> {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw(frame, Some(picture), None));
    let buffer = terminal.backend().buffer();
    let row = |y| {
        let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
        let text: String = cells.map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned()
    };
    let mut lines: Vec<String> = (0..height).map(row).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// What a person did.
#[derive(Debug, PartialEq, Eq)]
enum Did {
    Quit,
    Resized,
}

async fn live(source: &mut impl Source, every: Duration) -> Outcome<()> {
    let mut stopped = std::pin::pin!(interrupted());
    let mut terminal = ratatui::try_init()?;
    let mut did = listen();
    let mut picture = None;
    let shown = loop {
        let trouble = match source.look().await {
            Ok(seen) => {
                picture = Some(seen);
                None
            }
            Err(failure) => Some(failure.message().to_owned()),
        };
        let next = tokio::time::Instant::now() + every;
        let is_over = loop {
            if let Err(error) =
                terminal.draw(|frame| draw(frame, picture.as_ref(), trouble.as_deref()))
            {
                break Some(Err(error.into()));
            }
            tokio::select! {
                did = did.recv() => if did != Some(Did::Resized) { break Some(Ok(())) },
                () = &mut stopped => break Some(Ok(())),
                () = tokio::time::sleep_until(next) => break None,
            }
        };
        if let Some(ended) = is_over {
            break ended;
        }
    };
    ratatui::restore();
    shown
}

/// What is typed, and when the terminal changes its size. The thread ends with the program.
fn listen() -> mpsc::Receiver<Did> {
    let (tell, told) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if let Some(did) = meant(&event)
                && tell.blocking_send(did).is_err()
            {
                return;
            }
        }
    });
    told
}

fn meant(event: &Event) -> Option<Did> {
    match event {
        Event::Resize(..) => Some(Did::Resized),
        Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => match code {
            KeyCode::Char('q') | KeyCode::Esc => Some(Did::Quit),
            // In a terminal that is read key by key, nobody else hears of it.
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Did::Quit),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEventState;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
        let (kind, state) = (KeyEventKind::Press, KeyEventState::NONE);
        Event::Key(KeyEvent { code, modifiers, kind, state })
    }

    #[test]
    fn q_escape_and_ctrl_c_quit_and_nothing_else_does() {
        let none = KeyModifiers::NONE;
        for (event, expected) in [
            (key(KeyCode::Char('q'), none), Some(Did::Quit)),
            (key(KeyCode::Esc, none), Some(Did::Quit)),
            (key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Did::Quit)),
            (key(KeyCode::Char('c'), none), None),
            (key(KeyCode::Char('x'), none), None),
            (Event::Resize(80, 24), Some(Did::Resized)),
            (Event::FocusLost, None),
        ] {
            assert_eq!(meant(&event), expected, "{event:?}");
        }
    }
}
