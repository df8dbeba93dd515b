//! Which dead letters are meant: by id, or by filter; and the question before a filter acts.
//!
//! It refuses to act on everything by accident: no id and no filter means nothing until `--all`
//! says so, and a filter asks first, on a terminal, unless `--yes` has answered.

use std::io::{BufRead, IsTerminal, Write};

use tidemill::{DeadFilter, JobId, Triage};

use crate::duration::Moment;
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output;

/// What dead letters must be like. Every condition given must hold.
#[derive(Debug, Default, clap::Args)]
#[group(id = "dead_filter", multiple = true)]
pub struct Filter {
    /// Of this kind
    #[arg(long)]
    kind: Option<String>,
    /// In this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Of this group of errors
    #[arg(long)]
    fingerprint: Option<String>,
    /// With this tag
    #[arg(long)]
    tag: Option<String>,
    /// Died at this time or later; `2h` means two hours ago
    #[arg(long, value_name = "MOMENT")]
    since: Option<Moment>,
    /// Died before this time; `2h` means two hours ago
    #[arg(long, value_name = "MOMENT")]
    until: Option<Moment>,
    /// The error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// The payload has this value at this path: user.id=42
    #[arg(long, value_name = "PATH=VALUE", value_parser = field)]
    field: Option<(String, String)>,
    /// In this state of triage: new, investigated, retrying (on their way, or recovered) or abandoned
    #[arg(long)]
    triage: Option<Triage>,
    /// Those that were archived, instead of those that were not
    #[arg(long)]
    archived: bool,
}

impl Filter {
    /// The filter in the store's words, and by the store's clock.
    pub async fn resolve(self, mill: &Mill) -> Outcome<DeadFilter> {
        let now = mill.now().await?;
        Ok(DeadFilter {
            ids: Vec::new(),
            kind: self.kind,
            queue: self.queue,
            tenant: self.tenant,
            fingerprint: self.fingerprint,
            triage: self.triage,
            tag: self.tag,
            died_from: self.since.map(|moment| moment.resolve(now)),
            died_until: self.until.map(|moment| moment.resolve(now)),
            error_contains: self.error,
            payload_field: self.field,
            archived: self.archived,
        })
    }
}

/// Which dead letters to act on.
#[derive(Debug, clap::Args)]
pub struct Target {
    /// The dead letters, by id
    #[arg(conflicts_with = "dead_filter")]
    ids: Vec<JobId>,
    #[command(flatten)]
    filter: Filter,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Do not ask before acting on a filter
    #[arg(long, short)]
    yes: bool,
}

impl Target {
    /// The one id that was given, if it is one.
    pub fn only_id(&self) -> Option<JobId> {
        match self.ids.as_slice() {
            [id] => Some(*id),
            _ => None,
        }
    }

    /// The filter to act by. Ids must be dead letters; a filter is asked about.
    pub async fn meant(self, mill: &Mill, verb: &str) -> Outcome<Meant> {
        let (by_id, ids, all, yes) = (!self.ids.is_empty(), self.ids, self.all, self.yes);
        let filter = self.filter.resolve(mill).await?;
        if by_id {
            let filter = DeadFilter { ids, ..filter };
            refuse_unknown(mill, &filter).await?;
            return Ok(Meant { filter, asks: false });
        }
        if filter == DeadFilter::default() && !all {
            return Err(Failure::usage(format!("there is nothing that says what to {verb}"))
                .hint("give ids, a filter like --kind or --fingerprint, or --all"));
        }
        Ok(Meant { filter, asks: !yes })
    }

    /// The same, with a filter shown and asked about. `None` when there is nothing to do, or the answer was no.
    pub async fn settle(self, mill: &Mill, verb: &str) -> Outcome<Option<DeadFilter>> {
        let Meant { filter, asks } = self.meant(mill, verb).await?;
        if !filter.ids.is_empty() {
            return Ok(Some(filter));
        }
        let groups = mill.dead().groups(&filter).await?;
        let letters = groups.iter().map(|group| group.count).sum();
        if letters == 0 {
            eprintln!("no dead letter matches");
            return Ok(None);
        }
        let lines = groups.iter().map(|group| {
            let error = output::first_line(&group.error, 70);
            format!("  {:>7}  {}  {error}", output::grouped(group.count), group.kind)
        });
        Ok((!asks || ask(lines, letters, verb)?).then_some(filter))
    }
}

/// What is meant, and whether somebody is to be asked first.
pub struct Meant {
    pub filter: DeadFilter,
    pub asks: bool,
}

async fn refuse_unknown(mill: &Mill, filter: &DeadFilter) -> Outcome<()> {
    let known = mill.dead().list(filter, None, filter.ids.len()).await?;
    let unknown = filter.ids.iter().find(|id| known.iter().all(|letter| letter.id != **id));
    match unknown {
        None => Ok(()),
        Some(id) => {
            let message = format!("there is no dead letter {id}; nothing was done");
            Err(Failure::new(Exit::NotFound, "dead_letter_unknown", message)
                .hint("`tidemill dead list` shows them"))
        }
    }
}

/// Shows what would be acted on, and asks; without a terminal nobody can answer.
pub fn ask(groups: impl Iterator<Item = String>, letters: u64, verb: &str) -> Outcome<bool> {
    let what = output::count(letters, "dead letter", "dead letters");
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let message = format!("this would {verb} {what}, and nobody is there to be asked");
        return Err(Failure::new(Exit::Usage, "confirmation_needed", message)
            .hint("look with `tidemill dead groups`, then repeat it with --yes"));
    }
    for group in groups {
        eprintln!("{group}");
    }
    eprint!("{verb} {what}? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn field(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("write it as PATH=VALUE, like user.id=42")?;
    if path.is_empty() {
        return Err("the path is empty".to_owned());
    }
    Ok((path.to_owned(), value.to_owned()))
}
