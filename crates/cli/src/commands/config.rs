//! `tidemill config`: every setting of a command, and where it comes from.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};
use serde::Serialize;
use tidemill_store::without_password;

use crate::app::{App, DEFAULT_STORE};
use crate::config::{Config, is_settable};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// Which command is looked at.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tidemill config                               what `tidemill serve` would use
  tidemill config work
  tidemill config serve --listen 127.0.0.1:9000

A flag is stronger than the environment, the environment than the file (tidemill.toml, or what --config or
TIDEMILL_CONFIG names), and the file than the default. In the file, options have the names of their flags:

  store = \"postgres://app@localhost/app\"

  [serve]
  listen = \"0.0.0.0:8384\"
  require-token = true")]
pub struct Args {
    /// The command, and options for it [default: serve]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A setting.
#[derive(Debug, Serialize)]
struct Setting {
    name: String,
    value: Option<String>,
    origin: &'static str,
    /// Which variable, or which file.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

/// What the environment alone may say, because it is secret, or of no command.
const ENVIRONMENT: [(&str, bool); 4] = [
    ("TIDEMILL_KEYS", true),
    ("TIDEMILL_KEYS_FILE", false),
    ("TIDEMILL_LOG", false),
    ("TIDEMILL_TOKEN", true),
];

/// Shows the settings.
pub fn run(app: &App, args: Args) -> Outcome {
    let (config, program) = Config::read(crate::Cli::command())?;
    let words = if args.command.is_empty() { vec!["serve".into()] } else { args.command };
    if program.find_subcommand(&words[0]).is_none() {
        let word = words[0].to_string_lossy();
        return Err(Failure::usage(format!("there is no command {word:?}")));
    }
    // The words before `config` are of that command, too.
    let before = std::env::args_os().take_while(|word| word != "config");
    let matches = program.clone().ignore_errors(true).try_get_matches_from(before.chain(words));
    let matches = matches.map_err(|error| Failure::usage(error.to_string()))?;
    let mut all = of(&program, &matches, &[], &config);
    let (mut command, mut below, mut path) = (&program, &matches, Vec::new());
    while let Some((word, further)) = below.subcommand() {
        let Some(found) = command.find_subcommand(word) else { break };
        (command, below) = (found, further);
        path.push(word);
        all.extend(of(command, below, &path, &config));
    }
    all.extend(ENVIRONMENT.into_iter().map(|(name, is_secret)| of_environment(name, is_secret)));
    show(app, &config, &all);
    Ok(Exit::Ok)
}

fn of(command: &Command, matches: &ArgMatches, path: &[&str], config: &Config) -> Vec<Setting> {
    let own = command.get_arguments().filter(|arg| is_settable(arg));
    let own = own.filter(|arg| path.is_empty() || !arg.is_global_set());
    own.map(|arg| setting(arg, matches, path, config)).collect()
}

fn setting(arg: &Arg, matches: &ArgMatches, path: &[&str], config: &Config) -> Setting {
    let (id, option) = (arg.get_id().as_str(), arg.get_long().unwrap_or_default());
    let raw = matches.try_get_raw(id).ok().flatten();
    let values: Vec<String> =
        raw.into_iter().flatten().map(|value| without_password(&value.to_string_lossy())).collect();
    let (origin, from) = match matches.value_source(id) {
        Some(ValueSource::CommandLine) => ("flag", None),
        Some(ValueSource::EnvVariable) => {
            ("environment", arg.get_env().map(|name| name.to_string_lossy().into_owned()))
        }
        _ if config.has(path, option) => {
            ("file", config.file.as_ref().map(|file| file.display().to_string()))
        }
        _ => ("default", None),
    };
    let name = path.iter().copied().chain([option]).collect::<Vec<_>>().join(".");
    let value = (!values.is_empty()).then(|| values.join(", "));
    let value = value.or_else(|| (name == "store").then(|| DEFAULT_STORE.to_owned()));
    Setting { name, value, origin, from }
}

fn of_environment(name: &str, is_secret: bool) -> Setting {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    let origin = if value.is_some() { "environment" } else { "default" };
    let value = value.map(|value| if is_secret { "(hidden)".to_owned() } else { value });
    Setting { name: name.to_owned(), value, origin, from: None }
}

fn show(app: &App, config: &Config, all: &[Setting]) {
    if app.json {
        all.iter().for_each(output::json);
        return;
    }
    let mut table = output::table(&["SETTING", "VALUE", "FROM"]);
    for Setting { name, value, origin, from } in all {
        let from =
            from.as_ref().map_or_else(|| (*origin).to_owned(), |from| format!("{origin}: {from}"));
        table.add_row(vec![name.clone(), value.clone().unwrap_or_else(|| "-".to_owned()), from]);
    }
    output::show(&table);
    if config.file.is_none() {
        eprintln!(
            "no file was read; {} in this folder, or --config, would be",
            crate::config::DEFAULT_FILE
        );
    }
}
