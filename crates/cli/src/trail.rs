//! What this command leaves in the record of who did what.
//!
//! A command that changes what is not the ordinary flow of jobs is written down where the store is opened, before it
//! does anything, and completed with its code when it has ended. One table says which commands do; a test walks over
//! all there are. It refuses to write down values of options, among which are payloads, and secrets.

use std::sync::{Arc, Mutex, PoisonError};

use clap::{ArgMatches, Command};
use tidemill::Tidemill;
use tidemill::audit::{AuditEnd, NewAudit};
use tidemill_core::AuditId;
use tidemill_core::access::secret::PREFIX;

use crate::app::{App, whoami};
use crate::exit::{Exit, Outcome};

/// What a command changes, as the record names it; `""`: nothing that is written down.
const TABLE: &[(&str, &str)] = &[
    ("alerts", ""),
    ("audit", ""),
    ("bench", ""),
    ("completions", ""),
    ("config", ""),
    ("dead", ""),
    ("dead abandon", "dead"),
    ("dead apply", "plan"),
    ("dead archive", "dead"),
    ("dead delete", "dead"),
    ("dead groups", ""),
    ("dead investigate", "dead"),
    ("dead list", ""),
    ("dead note", "dead"),
    ("dead plans", ""),
    ("dead replay", "dead"),
    ("dead rules", ""),
    ("dead rules delete", "rule"),
    ("dead rules list", ""),
    ("dead rules set", "rule"),
    ("dead sample", ""),
    ("dead show", ""),
    ("dead undo", "plan"),
    ("demo", ""),
    ("doctor", ""),
    ("enqueue", ""),
    ("flows", ""),
    ("flows add", ""),
    ("flows begin", ""),
    ("flows cancel", "flow"),
    ("flows discard", ""),
    ("flows list", ""),
    ("flows rerun", "flow"),
    ("flows resolve", "flow"),
    ("flows retry", "flow"),
    ("flows show", ""),
    ("flows start", ""),
    ("flows undo", "flow"),
    ("flows wait", ""),
    ("jobs", ""),
    ("jobs cancel", "job"),
    ("jobs follow", ""),
    ("jobs list", ""),
    ("jobs priority", "job"),
    ("jobs retry", "job"),
    ("jobs show", ""),
    ("jobs wait", ""),
    ("jobs why", ""),
    ("keys list", ""),
    ("keys new", ""),
    ("keys rotate", "keys"),
    ("limits", ""),
    ("limits delete", "limit"),
    ("limits list", ""),
    ("limits set", "limit"),
    ("migrate", ""),
    ("queues", ""),
    ("queues list", ""),
    ("queues pause", "queue"),
    ("queues resume", "queue"),
    ("queues set", "queue"),
    ("queues unset", "queue"),
    ("queues wait", ""),
    ("queues why", ""),
    ("schedules", ""),
    ("schedules backfill", "schedule"),
    ("schedules declare", "schedule"),
    ("schedules delete", "schedule"),
    ("schedules history", ""),
    ("schedules list", ""),
    ("schedules pause", "schedule"),
    ("schedules preview", ""),
    ("schedules resume", "schedule"),
    ("schedules run", "schedule"),
    ("schedules set", "schedule"),
    ("schedules show", ""),
    ("serve", ""),
    ("token", ""),
    ("token create", "token"),
    ("token list", ""),
    ("token revoke", "token"),
    ("top", ""),
    ("webhooks", ""),
    ("webhooks delete", "webhook"),
    ("webhooks deliveries", ""),
    ("webhooks list", ""),
    ("webhooks redeliver", "webhook"),
    ("webhooks rotate", "webhook"),
    ("webhooks set", "webhook"),
    ("work", ""),
    ("workers", ""),
    ("workflows", ""),
    ("workflows cancel", "workflow"),
    ("workflows diff", ""),
    ("workflows edit", "workflow"),
    ("workflows export", ""),
    ("workflows fork", "workflow"),
    ("workflows list", ""),
    ("workflows mail", ""),
    ("workflows object", ""),
    ("workflows pause", "workflow"),
    ("workflows replay", ""),
    ("workflows reset", "workflow"),
    ("workflows resume", "workflow"),
    ("workflows show", ""),
    ("workflows signal", ""),
    ("workflows skip", "workflow"),
    ("workflows update", ""),
];

/// The trail of one command.
#[derive(Debug, Clone, Default)]
pub struct Trail(Arc<Mutex<Left>>);

#[derive(Debug, Default)]
struct Left {
    act: Option<Act>,
    begun: Option<AuditId>,
    is_nothing: bool,
}

#[derive(Debug, Clone)]
struct Act {
    name: String,
    kind: &'static str,
    target: String,
    detail: String,
}

impl Trail {
    /// The trail that a command line leaves, if it does.
    pub fn of(program: &Command, matches: &ArgMatches) -> Self {
        let (mut command, mut matches) = (program, matches);
        let mut words = Vec::new();
        while let Some((word, below)) = matches.subcommand() {
            words.push(word);
            matches = below;
            let Some(found) = command.find_subcommand(word) else { break };
            command = found;
        }
        let name = words.join(" ");
        let kind = TABLE.iter().find(|(named, _)| *named == name).map_or("", |(_, kind)| kind);
        let act = (!kind.is_empty()).then(|| Act {
            kind,
            target: target(command, matches),
            detail: options(command, matches),
            name,
        });
        Self(Arc::new(Mutex::new(Left { act, ..Left::default() })))
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what the command is about to do, once.
    pub async fn begin(&self, mill: &Tidemill) -> Outcome<()> {
        let id = AuditId::new();
        let act = {
            let mut left = self.left();
            if left.begun.is_some() {
                return Ok(());
            }
            let Some(act) = left.act.clone() else { return Ok(()) };
            left.begun = Some(id);
            act
        };
        let Act { name: act, kind, target, detail } = act;
        let (who, target_kind) = (format!("cli:{}", whoami()), kind.to_owned());
        let new = NewAudit { id, who, credential: None, act, target_kind, target, detail };
        Ok(mill.audit().begin(new).await?)
    }

    /// The command has found nothing to do, or was told not to.
    pub fn nothing(&self) {
        self.left().is_nothing = true;
    }

    /// Completes what was written down. The command has closed its store, so it is opened once more.
    pub async fn end(&self, app: &App, outcome: &Outcome) {
        let (begun, is_nothing) = {
            let mut left = self.left();
            (left.begun.take(), left.is_nothing)
        };
        let Some(id) = begun else { return };
        let result = match outcome {
            Ok(_) if is_nothing => "nothing",
            Ok(Exit::Ok) => "ok",
            Ok(_) => "failed",
            Err(failure) => failure.code(),
        };
        let end = AuditEnd { result: result.to_owned(), ..AuditEnd::default() };
        let ended = async {
            let mill = Tidemill::open(app.url()).await?;
            mill.audit().end(id, end).await?;
            mill.close().await;
            tidemill::Result::Ok(())
        };
        if let Err(error) = ended.await {
            eprintln!("warning: the record of this act ({id}) could not be completed: {error}");
        }
    }
}

/// What stands first among the arguments without a name: ids, or a name. Never a secret.
fn target(command: &Command, matches: &ArgMatches) -> String {
    let first = command.get_positionals().next().map(clap::Arg::get_id);
    let values = first.and_then(|id| matches.try_get_raw(id.as_str()).ok().flatten());
    let words = values.into_iter().flatten().map(|value| {
        let value = value.to_string_lossy();
        if value.starts_with(PREFIX) { format!("{PREFIX}…") } else { value.into_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The names of the options that were given, without their values.
fn options(command: &Command, matches: &ArgMatches) -> String {
    use clap::parser::ValueSource;
    let given = command.get_arguments().filter(|arg| {
        !arg.is_positional()
            && !arg.is_global_set()
            && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
    });
    let names = given.filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
    names.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn walk(command: &Command, path: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name()).trim().to_owned();
            let is_called =
                below.get_subcommands().next().is_none() || !below.is_subcommand_required_set();
            if is_called {
                found.push(path.clone());
            }
            walk(below, &path, found);
        }
    }

    #[test]
    fn every_command_is_said_to_change_something_or_not() {
        let mut found = Vec::new();
        walk(&crate::Cli::command(), "", &mut found);
        found.sort();
        let known: Vec<_> = TABLE.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(known, found, "the table has each command once, in order");
    }

    #[test]
    fn what_is_written_down_has_no_values_and_no_secrets() {
        let of = |line: &str| {
            let program = crate::Cli::command();
            let words = format!("tidemill {line}");
            let matches = program.clone().get_matches_from(words.split(' '));
            Trail::of(&program, &matches).left().act.clone()
        };
        let act = of("dead archive --kind secret --yes --message private").unwrap();
        assert_eq!((act.name.as_str(), act.kind), ("dead archive", "dead"));
        assert!(act.detail.contains("--kind") && act.detail.contains("--yes"), "{}", act.detail);
        assert!(!act.detail.contains("secret") && !act.detail.contains("private"));
        assert_eq!(of("queues pause mail --store sqlite:a.db").unwrap().target, "mail");
        let revoked = of("token revoke tdm_abcdef").unwrap();
        assert_eq!(revoked.target, "tdm_…");
        assert!(of("dead list").is_none() && of("enqueue k {}").is_none());
    }
}
