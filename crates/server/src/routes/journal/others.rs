//! What a job gets of others: steps that it comes after, and children. It is shown to who reaches those, or runs jobs,
//! who has it with them. All else is told how they stand, and neither what they returned nor what they said.

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use tidemill::Payload;
use tidemill::store::run::Beside;
use tidemill_core::access::Act;
use tidemill_core::workflow::{ChildEnd, Content, Entry};
use tidemill_core::{FlowId, JobId};

use crate::access::Caller;
use crate::api::App;
use crate::problem::{Answer, Refusal};
use crate::routes::flows;

/// Jobs that are looked at in one go.
const JOBS_AT_ONCE: usize = 1000;

/// Whether the caller may have whatever any job gets.
fn has_all(caller: &Caller) -> bool {
    !caller.is_limited() || caller.check_act(Act::Work).is_ok()
}

/// Whether the caller may have whatever a job of this flow gets from others: who runs jobs has it with them; all else
/// must reach those others, too.
pub(super) async fn has_whole(app: &App, caller: &Caller, flow: FlowId) -> Answer<bool> {
    Ok(has_all(caller) || flows::find(app, caller, flow).await?.is_some())
}

/// Leaves out what jobs returned that the caller does not reach.
pub(crate) async fn show_inputs(
    app: &App,
    caller: &Caller,
    flow: FlowId,
    inputs: &mut [tidemill::Input],
) -> Answer<()> {
    if inputs.is_empty() || has_whole(app, caller, flow).await? {
        return Ok(());
    }
    let store = app.mill.store();
    for input in inputs.iter_mut().filter(|input| input.output.is_some()) {
        let only = store.outputs(flow, input.number, None, 1).await;
        let only = only.map_err(tidemill::Error::from)?.into_iter().map(|one| one.id);
        if reached(app, caller, only.collect()).await?.is_empty() {
            input.output = None;
        }
    }
    Ok(())
}

/// Those of these jobs that the caller reaches.
pub(super) async fn reached(
    app: &App,
    caller: &Caller,
    ids: Vec<JobId>,
) -> Answer<BTreeSet<JobId>> {
    let mut reached = BTreeSet::new();
    for ids in ids.chunks(JOBS_AT_ONCE) {
        let places = app.mill.store().places_of(ids.to_vec()).await;
        let places = places.map_err(tidemill::Error::from)?.into_iter();
        let seen = places.filter(|(_, at)| caller.sees_place(&at.queue, at.tenant.as_deref()));
        reached.extend(seen.map(|(id, _)| id));
    }
    Ok(reached)
}

/// Leaves out what children returned, or said, that the caller does not reach.
async fn show_ends(app: &App, caller: &Caller, ends: Vec<&mut ChildEnd>) -> Answer<()> {
    if has_all(caller) {
        return Ok(());
    }
    let reached = reached(app, caller, ends.iter().map(|end| end.id).collect()).await?;
    for end in ends.into_iter().filter(|end| !reached.contains(&end.id)) {
        (end.output, end.error) = (None, None);
    }
    Ok(())
}

/// The same in all that came for a run.
pub(crate) async fn show_mail(app: &App, caller: &Caller, mail: Vec<&mut Content>) -> Answer<()> {
    let ends = mail.into_iter().filter_map(|content| match content {
        Content::Child(end) => Some(end),
        _ => None,
    });
    show_ends(app, caller, ends.collect()).await
}

/// The same in all that a run did.
pub(crate) async fn show_entries(
    app: &App,
    caller: &Caller,
    entries: Vec<&mut Entry>,
) -> Answer<()> {
    let ends = entries.into_iter().filter_map(|entry| match entry {
        Entry::Joined { ends, .. } => Some(ends),
        _ => None,
    });
    show_ends(app, caller, ends.flatten().collect()).await
}

/// The same in entries as they are kept.
pub(super) async fn show_texts(app: &App, caller: &Caller, texts: Vec<&mut String>) -> Answer<()> {
    if has_all(caller) {
        return Ok(());
    }
    let texts = texts.into_iter().filter(|text| text.contains("\"joined\""));
    let read = texts.map(|text| Ok((read(text)?, text))).collect::<Answer<Vec<_>>>();
    let (mut entries, texts): (Vec<Entry>, Vec<&mut String>) = read?.into_iter().unzip();
    show_entries(app, caller, entries.iter_mut().collect()).await?;
    for (text, entry) in texts.into_iter().zip(entries) {
        *text = serde_json::to_string(&entry).map_err(|error| Refusal::internal(&error))?;
    }
    Ok(())
}

/// The same in what stands beside an entry: `null` for each that is left out.
pub(super) async fn show_beside(app: &App, caller: &Caller, beside: Beside) -> Answer<Payload> {
    let Beside { entry, value } = beside;
    if has_all(caller) {
        return Ok(value);
    }
    let Entry::Joined { ends, .. } = read(&entry)? else { return Ok(value) };
    let reached = reached(app, caller, ends.iter().map(|end| end.id).collect()).await?;
    let mut outputs: Vec<Box<RawValue>> =
        serde_json::from_str(value.as_str()).map_err(|error| Refusal::internal(&error))?;
    for (output, _) in outputs.iter_mut().zip(&ends).filter(|(_, end)| !reached.contains(&end.id)) {
        *output = RawValue::NULL.to_owned();
    }
    let shown = serde_json::to_string(&outputs).map_err(|error| Refusal::internal(&error))?;
    Ok(Payload::trusted(shown))
}

fn read(text: &str) -> Answer<Entry> {
    serde_json::from_str(text).map_err(|error| Refusal::internal(&error))
}
