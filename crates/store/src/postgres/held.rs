//! Letting those through who are held at gates, when rules change, in pieces that keep nobody else waiting.
//!
//! Who is let through is back where he stood, and claims look again whether he may pass.

use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::statement::{At, Statement, sql};
use crate::wake::Hint;

const RELEASE: Statement = sql!("release_held", TEXT, TEXT, TIMESTAMPTZ, INT8, TEXT, INT8);

/// Sheaves let through by one statement.
const PIECE: i64 = 1000;

/// The rules of a queue or pattern have changed: whoever is held by them may be held elsewhere now, or not at all. Each
/// is met once, so that it ends, whatever claims hold meanwhile.
pub(crate) async fn release(shared: &Shared, rule: &str) -> Result<()> {
    let mut gate = rule.strip_suffix('*').map_or(format!("{rule}/"), str::to_owned);
    let end = format!("{gate}{}", char::MAX);
    let (mut queue, mut run_at, mut seq): (String, Option<At>, i64) = (String::new(), None, 0);
    loop {
        let piece = shared.db.read(&RELEASE, &[&gate, &queue, &run_at, &seq, &end, &PIECE]).await?;
        let Some(last) = piece.first() else { return Ok(()) };
        (gate, queue, run_at, seq) = (last.get(0), last.get(1), last.get(2), last.get(3));
        for queue in last.get::<_, Vec<String>>(5) {
            shared.hint(Hint::Ready { queue });
        }
        if !last.get::<_, bool>(4) {
            return Ok(());
        }
    }
}
