//! Changes a job that waits. It keeps its due time and its age: in another band it stands among those of that band.

use rusqlite::params;
use tidemill_core::JobId;
use tidemill_core::job::edit::Edit;

use crate::error::Result;
use crate::request::EditAnswer;
use crate::sqlite::lease::Lease;
use crate::sqlite::ready;
use crate::sqlite::rows::write_options;
use crate::sqlite::writer::Turn;

/// Changes a job that waits, wherever it does.
pub(super) fn edit(turn: &mut Turn<'_>, id: JobId, edit: &Edit) -> Result<EditAnswer> {
    let conn = turn.conn;
    let mut finished = conn.prepare_cached(include_str!("sql/is_finished.sql"))?;
    if finished.exists([id.0.as_bytes()])? {
        return Ok(EditAnswer::Finished);
    }
    let Some(body) = ready::body(conn, id)? else { return Ok(EditAnswer::Unknown) };
    let waiting = ready::find(conn, &body, &ready::last_attempt(conn, id)?)?;
    if waiting.is_none() && Lease::holding(conn, id)?.is_some() {
        return Ok(EditAnswer::Running);
    }
    let Some(after) = edit.apply(&body.job) else { return Ok(EditAnswer::Changed) };
    if let Some(waiting) = waiting.filter(|_| after.priority != body.job.priority) {
        ready::delete(turn, &body.job, waiting.run_at)?;
        ready::insert(turn, &after, waiting)?;
        // Claims may have passed by its due time in that band.
        turn.marks.forget();
        turn.news.ready(&after.queue);
    }
    let mut update = conn.prepare_cached(include_str!("sql/edit_job.sql"))?;
    let (band, options) = (after.priority.band(), write_options(&after.options));
    update.execute(params![id.0.as_bytes(), band, after.payload.as_str(), options])?;
    Ok(EditAnswer::Edited)
}
