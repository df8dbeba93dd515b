//! What commands print: tables for people, stable JSON for programs.
//!
//! Data goes to stdout, talk to stderr. With `--json` a list is JSON lines, one document per line,
//! and anything else is one document. Colour appears only on a terminal, and never with NO_COLOR.
//! It refuses to cut what is piped: only a terminal's width bends a table.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{Error, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, presets,
};
use console::Term;
use serde::Serialize;
use serde_json::Value;
use tidemill::{Redaction, State, Triage};
use tokio::sync::SetOnce;

use crate::app::App;
use crate::exit::{Exit, Failure, Outcome};

/// Prints one line on stdout.
pub fn line(text: impl std::fmt::Display) {
    write(format_args!("{}\n", harmless(&text.to_string())));
}

/// The same text, in which what would act on a terminal is seen instead: jobs say what they like. Colours stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let acts = |sign: char| sign.is_control() && !matches!(sign, '\n' | '\t');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut seen = String::with_capacity(text.len());
    for (at, sign) in text.char_indices() {
        if acts(sign) && !(sign == '\x1b' && is_colour(&text[at + 1..])) {
            seen.extend(sign.escape_default());
        } else {
            seen.push(sign);
        }
    }
    Cow::Owned(seen)
}

/// Whether what follows an escape sets a colour, and does nothing else.
fn is_colour(text: &str) -> bool {
    let is_part = |sign: char| sign.is_ascii_digit() || sign == ';';
    text.strip_prefix('[').is_some_and(|rest| rest.trim_start_matches(is_part).starts_with('m'))
}

/// Prints this on stdout as it is. After the first that could not be written nothing is.
pub fn write(text: Arguments<'_>) {
    if BROKEN.get().is_some() {
        return;
    }
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        let _broken_before = BROKEN.set(error);
    }
}

/// Why stdout takes no more.
static BROKEN: SetOnce<Error> = SetOnce::const_new();

/// Whether nobody gets what is said: a command that tells what comes has no more to do.
pub fn is_broken() -> bool {
    BROKEN.get().is_some()
}

/// Completes when stdout takes no more.
pub async fn broken() {
    BROKEN.wait().await;
}

/// The same outcome, unless what was to be said could not be. A reader who went away (`| head`) had enough.
pub fn end(outcome: Outcome) -> Outcome {
    match BROKEN.get() {
        Some(error) if outcome.is_ok() && error.kind() != ErrorKind::BrokenPipe => {
            let message = format!("stdout could not be written: {error}");
            Err(Failure::new(Exit::Failed, "io", message))
        }
        _ => outcome,
    }
}

/// Prints one document on a line of its own.
pub fn json<T: Serialize + ?Sized>(document: &T) {
    match serde_json::to_string(document) {
        Ok(text) => {
            let text = HIDDEN.get().map_or(Cow::Borrowed(&*text), |rules| rules.document(&text));
            write(format_args!("{text}\n"));
        }
        Err(error) => drop(BROKEN.set(error.into())),
    }
}

/// Says what a command did: a document for programs, a sentence for people.
pub fn did(app: &App, document: &Value, sentence: &str) {
    if app.json {
        json(document);
    } else {
        eprintln!("{sentence}");
    }
}

/// What is not to be seen of payloads, said once.
static HIDDEN: OnceLock<Redaction> = OnceLock::new();

/// Hides these fields in all that is shown from now on.
pub fn hide(hidden: Redaction) {
    let _said_before = HIDDEN.set(hidden);
}

/// A payload, an output or anything else that is the jobs', as it may be shown.
pub fn shown(text: &str) -> Cow<'_, str> {
    HIDDEN.get().map_or(Cow::Borrowed(text), |rules| rules.json(text))
}

/// What a job says, without what is not to be seen of its payload.
pub fn without<'t>(payload: &str, text: &'t str) -> Cow<'t, str> {
    let secrets = HIDDEN.get().map(|rules| rules.secrets(payload)).unwrap_or_default();
    secrets.hide(text)
}

/// Whether stdout may be coloured.
fn colourful(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Colours for text outside of tables.
#[derive(Debug, Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// For text on stdout.
    pub fn stdout() -> Self {
        Self(colourful(&std::io::stdout()))
    }

    /// For text on stderr.
    pub fn stderr() -> Self {
        Self(colourful(&std::io::stderr()))
    }

    /// Whether there is colour at all.
    pub fn is_on(self) -> bool {
        self.0
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// For what is wrong.
    pub fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// For what went well.
    pub fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// For what did not happen.
    pub fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// For what to try next.
    pub fn cyan(self, text: &str) -> String {
        self.wrap("36", text)
    }

    /// For titles.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// For what may be passed over.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }
}

/// A table without borders: columns that line up, and nothing else.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().map(|word| Cell::new(word).add_attribute(Attribute::Bold)));
    // A terminal that does not know its width must not squeeze the table to nothing.
    if std::io::stdout().is_terminal()
        && let Some((_, columns)) = Term::stdout().size_checked()
    {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(columns);
    }
    if !colourful(&std::io::stdout()) {
        table.force_no_tty();
    }
    // Columns are told apart by two spaces, and the first begins at the margin.
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Prints a table, without the spaces at the ends of its lines.
pub fn show(table: &Table) {
    line(table.trim_fmt());
}

/// Prints a table of many rows, each on one line of a terminal: the last column gives way.
pub fn show_clipped(table: &mut Table) {
    if std::io::stdout().is_terminal() {
        let columns = table.column_count();
        for column in table.column_iter_mut().take(columns.saturating_sub(1)) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        table.row_iter_mut().for_each(|row| {
            row.max_height(1);
        });
    }
    show(table);
}

/// A number, at the right of its column, quiet when it is zero.
pub fn number(n: u64) -> Cell {
    let cell = Cell::new(grouped(n)).set_alignment(CellAlignment::Right);
    if n == 0 { cell.add_attribute(Attribute::Dim) } else { cell }
}

/// A number that should be zero.
pub fn bad_number(n: u64) -> Cell {
    if n == 0 { number(n) } else { number(n).fg(Color::Red) }
}

/// Text at the right of its column.
pub fn right(text: impl std::fmt::Display) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Text that may be passed over.
pub fn quiet(text: impl std::fmt::Display) -> Cell {
    Cell::new(text).add_attribute(Attribute::Dim)
}

/// A state in its colour; its word says the same without it.
pub fn state(state: State) -> Cell {
    let colour = match state {
        State::Done => Color::Green,
        State::Running => Color::Cyan,
        State::Dead => Color::Red,
        State::Scheduled | State::Blocked => Color::Yellow,
        State::Ready => Color::Blue,
        State::Cancelled => Color::DarkGrey,
    };
    Cell::new(state.word()).fg(colour)
}

/// A state of triage in its colour.
pub fn triage(triage: Triage) -> Cell {
    let colour = match triage {
        Triage::New => Color::Red,
        Triage::Investigated => Color::Yellow,
        Triage::Retrying => Color::Cyan,
        Triage::Abandoned => Color::DarkGrey,
    };
    Cell::new(triage.word()).fg(colour)
}

/// A number with its thousands set apart: `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// One job, two jobs.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

/// The first line of a text, cut to a width.
pub fn first_line(text: &str, chars_max: usize) -> String {
    let first = text.lines().next().unwrap_or_default();
    if first.chars().count() <= chars_max && first.len() == text.trim_end().len() {
        return first.to_owned();
    }
    let cut: String = first.chars().take(chars_max.saturating_sub(1)).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (n, shown) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), shown);
        }
    }

    #[test]
    fn what_would_act_on_a_terminal_is_seen_instead() {
        for (text, seen) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            ("a\x1b[2Jb\x1b]0;title\x07\r", "a\\u{1b}[2Jb\\u{1b}]0;title\\u{7}\\r"),
            ("\u{9b}2J\x1b", "\\u{9b}2J\\u{1b}"),
        ] {
            assert_eq!(harmless(text), seen);
        }
    }

    #[test]
    fn only_the_first_line_is_shown() {
        assert_eq!(first_line("short", 10), "short");
        assert_eq!(first_line("two\nlines", 10), "two…");
        assert_eq!(first_line("much too long", 5), "much…");
    }
}
