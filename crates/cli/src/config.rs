//! The configuration file: options that are not to be typed each time.
//!
//! What a file says becomes the default of the option of that name, so a flag is stronger, and so is the environment;
//! nothing else in the program knows that there are files. It refuses names and values that no command has.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use toml::{Table, Value};

use crate::exit::{Exit, Failure, Outcome};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "tidemill.toml";

/// What was read, and where.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The options it names: the command's words, then the option's.
    given: Vec<Vec<String>>,
}

impl Config {
    /// Reads the file that the command line or the environment names, or `tidemill.toml` if it is there, and puts what
    /// it says into the program.
    pub fn read(program: Command) -> Outcome<(Self, Command)> {
        let named = named(&program);
        let file = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        if named.is_none() && !file.exists() {
            return Ok((Self::default(), program));
        }
        let text = std::fs::read_to_string(&file)
            .map_err(|error| invalid(&file, &format!("it cannot be read: {error}")))?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let place = error.span().map_or_else(String::new, |span| place(&text, span.start));
            invalid(&file, &format!("it is not TOML{place}: {}", error.message()))
        })?;
        let mut config = Self { file: Some(file.clone()), given: Vec::new() };
        let program = config.put(program, table, &[]).map_err(|reason| invalid(&file, &reason))?;
        Ok((config, program))
    }

    /// Whether the file has this option of this command.
    pub fn has(&self, command: &[&str], option: &str) -> bool {
        let words = command.iter().copied().chain([option]);
        self.given.iter().any(|given| given.iter().map(String::as_str).eq(words.clone()))
    }

    fn put(
        &mut self,
        mut command: Command,
        table: Table,
        words: &[String],
    ) -> Result<Command, String> {
        for (name, value) in table {
            let words: Vec<String> = words.iter().cloned().chain([name.clone()]).collect();
            let shown = words.join(".");
            match value {
                Value::Table(table) => {
                    let Some(below) = command.find_subcommand_mut(&name) else {
                        let known = command.get_subcommands().map(Command::get_name);
                        return Err(unknown("command", &shown, known));
                    };
                    let changed = std::mem::take(below);
                    *below = self.put(changed, table, &words)?;
                }
                value => {
                    let found = command.get_arguments().find(|arg| is_option(arg, &name));
                    let Some(id) = found.map(|arg| arg.get_id().clone()) else {
                        let known = command.get_arguments().filter(|arg| is_settable(arg));
                        return Err(unknown("option", &shown, known.filter_map(Arg::get_long)));
                    };
                    let texts = texts(&value)
                        .ok_or_else(|| format!("{shown} is a date, which no option is"))?;
                    let mut wrong = None;
                    command = command.mut_arg(id, |arg| match put_default(arg.clone(), texts) {
                        Ok(arg) => arg,
                        Err(reason) => {
                            wrong = Some(format!("{shown} {reason}"));
                            arg
                        }
                    });
                    if let Some(wrong) = wrong {
                        return Err(wrong);
                    }
                    self.given.push(words);
                }
            }
        }
        Ok(command)
    }
}

/// Where in a text this is, and nothing of the text itself, which may be a password.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let (lines, column) = (before.split('\n'), before.rsplit('\n').next().unwrap_or_default());
    format!(" (line {}, column {})", lines.count(), column.chars().count() + 1)
}

/// The file that is named, by a flag or by the environment.
fn named(program: &Command) -> Option<PathBuf> {
    let lenient = program.clone().ignore_errors(true).disable_help_flag(true);
    let matches =
        lenient.disable_version_flag(true).try_get_matches_from(std::env::args_os()).ok()?;
    matches.try_get_one::<PathBuf>("config").ok().flatten().cloned()
}

/// Whether a file can say it: an option with a name, that is not of one call alone.
pub fn is_settable(arg: &Arg) -> bool {
    let is_asked_for = matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    let is_of_one_call = ["config", "describe"].iter().any(|id| arg.get_id() == id);
    arg.get_long().is_some() && !is_of_one_call && !is_asked_for
}

fn is_option(arg: &Arg, name: &str) -> bool {
    is_settable(arg) && arg.get_long().is_some_and(|long| long == name)
}

/// A value as one would type it, or several.
fn texts(value: &Value) -> Option<Vec<String>> {
    Some(match value {
        Value::String(text) => vec![text.clone()],
        Value::Integer(number) => vec![number.to_string()],
        Value::Float(number) => vec![number.to_string()],
        Value::Boolean(is) => vec![is.to_string()],
        Value::Array(all) => {
            let all: Option<Vec<_>> = all.iter().map(texts).collect();
            all?.into_iter().flatten().collect()
        }
        Value::Datetime(_) | Value::Table(_) => return None,
    })
}

/// The option with what the file says as its default.
fn put_default(arg: Arg, texts: Vec<String>) -> Result<Arg, String> {
    let takes_many = matches!(arg.get_action(), ArgAction::Append);
    if !takes_many && texts.len() != 1 {
        return Err(format!("takes one value, not {}", texts.len()));
    }
    for text in &texts {
        try_value(&arg, text).map_err(|said| format!("cannot be {text:?}: {said}"))?;
    }
    Ok(arg.required(false).default_values(texts))
}

/// Refuses a value that the option would refuse.
fn try_value(arg: &Arg, text: &str) -> Result<(), String> {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let is_fine = matches!(text, "true" | "false");
        return if is_fine { Ok(()) } else { Err("it is true or false".to_owned()) };
    }
    let alone = arg.clone().global(false).required(false).long("x");
    let line = ["tidemill", "--x", text];
    // By itself: what other options it goes with is seen when the command runs.
    let tried = Command::new("tidemill").arg(alone).try_get_matches_from(line);
    tried.map(drop).map_err(|error| {
        let said = error.to_string();
        let said = said.lines().next().unwrap_or_default();
        said.rsplit(": ").next().unwrap_or(said).to_owned()
    })
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<_> = known.collect();
    known.sort_unstable();
    format!("there is no {what} {name}; there are {}", known.join(", "))
}

fn invalid(file: &Path, reason: &str) -> Failure {
    let message = format!("{}: {reason}", file.display());
    Failure::new(Exit::Usage, "config_invalid", message)
        .hint("`tidemill config` shows every setting, and where it comes from")
}
