//! Sees to what runs owe that ended otherwise than well: undoes their steps, and calls off their children.
//!
//! What a run did is undone by a flow of the same id, so it is stuck, retried, resolved and watched as any saga is. The
//! handler that made the run is not needed for it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tidemill_core::flow::{After, Flow, FlowOptions, Step, UndoRule, Work};
use tidemill_core::limit::NAME_BYTES_MAX;
use tidemill_core::workflow::{Ending, Entry, Undoing, orphans, undos};
use tidemill_core::{FlowId, JobId, OwnRetry};
use tidemill_store::Hint;
use tidemill_store::flow::Start;
use tidemill_store::run::Debt;
use tokio_util::sync::CancellationToken;

use crate::engine::Tidemill;
use crate::engine::service::Tending;
use crate::error::Result;

/// Why a child is called off.
const ENDED_BEFORE: &str = "its parent ended before it";
/// Children looked for in one call.
const PAGE_CHILDREN: usize = 500;
/// Runs seen to at a time.
const RUNS_MAX: usize = 100;
/// Bytes of what a step returned that its undo is told, at most.
const TOLD_BYTES_MAX: usize = 512 * 1024;
/// The step of an undoing flow from which on there is no way back: one that dies holds those behind it.
const TURNED_BACK: &str = "turned back";

/// Tends until `stop`: when it is told to, and every few seconds.
pub(crate) async fn run(mill: Tidemill, stop: CancellationToken) {
    let tending = Tending {
        every: Duration::from_secs(5),
        is_meant: |hint| matches!(hint, Hint::Runs | Hint::Any),
        failed: "what runs owe could not be seen to",
    };
    tending.run(mill, stop, |mill| async move { tend(&mill).await }).await;
}

/// Sees to all that is owed. Any number of nodes may do so at once.
pub(crate) async fn tend(mill: &Tidemill) -> Result<()> {
    let (mut last, mut failed) = (None, None);
    loop {
        let owing = mill.0.store.debts(last, RUNS_MAX).await?;
        if owing.is_empty() {
            return failed.map_or(Ok(()), Err);
        }
        last = owing.last().copied();
        for debt in owing {
            // One that cannot be seen to now keeps nobody else waiting.
            if let Err(error) = pay(mill, debt).await {
                failed = Some(error);
            }
        }
    }
}

/// Sees to one run. Another node may have done so before, and the run may have been sent again since.
async fn pay(mill: &Tidemill, debt: Debt) -> Result<()> {
    let (store, job) = (&mill.0.store, debt.job);
    let journal = mill.journal(job).await?;
    let mut entries: Vec<Entry> = journal.into_iter().map(|recorded| recorded.entry).collect();
    for entry in &mut entries {
        if is_told(entry) {
            mill.fetch(job, entry).await?;
        }
    }
    let orphans = own_of(mill, job, orphans(&entries).into_iter().collect()).await?;
    let undos = undos(&entries);
    if undos.is_empty() {
        store.pay(debt, &orphans, ENDED_BEFORE).await?;
        return Ok(());
    }
    // From here on it never goes on, however late we are with the rest.
    if !store.undo_run(debt).await? {
        return Ok(());
    }
    if !orphans.is_empty() {
        store.cancel(orphans, ENDED_BEFORE).await?;
    }
    let kind = mill.job(job).await?.map(|view| view.job.kind.clone()).unwrap_or_default();
    let own: HashMap<JobId, Option<OwnRetry>> =
        undos.iter().map(|undo| (undo.job.id, undo.job.options.retry.clone())).collect();
    let mut plan = undoing(job, &kind, undos).plan(&mill.0.limits, mill.0.retention)?;
    // They are retried as their kind says, not for ever: then somebody has to act.
    for planned in &mut plan.jobs {
        planned.job.options.retry = own.get(&planned.job.id).cloned().flatten();
    }
    // In one transaction: a node that is so late that all of this is forgotten would undo it once more.
    store.start_flow(plan, Start::Pays(debt)).await?;
    Ok(())
}

/// Those of these jobs that are this run's own: an id that it names may be another's job by now, or one that others
/// wait for too. What they carry is not looked at: this node may not have the key for it, and a debt is paid once.
async fn own_of(mill: &Tidemill, run: JobId, mut named: Vec<JobId>) -> Result<Vec<JobId>> {
    let mut own = Vec::with_capacity(named.len());
    while !named.is_empty() {
        let page = named.split_off(named.len().saturating_sub(PAGE_CHILDREN));
        own.extend(mill.0.store.children_of(run, page).await?);
    }
    Ok(own)
}

/// Whether an undo is told what its step returned: what would not fit into a payload is left out.
fn is_told(entry: &Entry) -> bool {
    matches!(entry, Entry::Ended { ending: Ending::Aside { bytes, .. }, .. } if *bytes <= TOLD_BYTES_MAX)
}

/// The flow that undoes a run: one undo after another.
fn undoing(run: JobId, kind: &str, undos: Vec<Undoing>) -> Flow {
    let mut before = TURNED_BACK.to_owned();
    let mut first = Step::new(TURNED_BACK, Work::Jobs(Vec::new()));
    first.pivot = true;
    first.undo = UndoRule::Nothing;
    let mut steps = vec![first];
    let mut taken = HashSet::new();
    for undoing in undos {
        let name = own_name(&undoing.key, &mut taken);
        let mut step = Step::new(name.clone(), Work::Jobs(vec![undoing.job]));
        step.after = vec![After::success(std::mem::replace(&mut before, name))];
        step.undo = UndoRule::Nothing;
        steps.push(step);
    }
    let options = FlowOptions { saga: true, ..FlowOptions::default() };
    Flow { id: FlowId(run.0), name: fitting(&format!("undo {kind}"), ""), steps, options }
}

/// What the undo of a step is called: after its key, and like no other.
fn own_name(key: &str, taken: &mut HashSet<String>) -> String {
    let name = format!("undo {key}").replace(|sign: char| sign == '/' || sign.is_control(), " ");
    let mut own = fitting(&name, "");
    for number in 2.. {
        if taken.insert(own.clone()) {
            break;
        }
        own = fitting(&name, &format!(" ({number})"));
    }
    own
}

/// A name with its ending, as much of it as may be the name of a step or a flow: keys may be longer.
fn fitting(name: &str, ending: &str) -> String {
    let end = name.floor_char_boundary(NAME_BYTES_MAX - ending.len());
    format!("{}{ending}", name[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undos_of_any_keys_have_names_of_their_own() {
        let long = "a".repeat(200);
        let (scoped, accented) = (format!("{long}/b"), "é".repeat(100));
        let keys = ["pay", "a/b", "a b", "a\nb", "tail ", &long, &scoped, &accented, &scoped];
        let mut taken = HashSet::new();
        let names: Vec<String> = keys.iter().map(|key| own_name(key, &mut taken)).collect();
        let shown = ["undo pay", "undo a b", "undo a b (2)", "undo a b (3)", "undo tail"];
        assert_eq!(names[..5], shown);
        for name in &names {
            tidemill_core::name::check("step", name, NAME_BYTES_MAX).unwrap();
        }
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), keys.len());
    }
}
