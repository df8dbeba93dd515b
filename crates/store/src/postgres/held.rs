//! Letting those through who are held at gates, when rules change, in pieces that keep nobody else waiting.
//!
//! Who is let through is back where he stood, and claims look again whether he may pass.

use tidemill_core::gate::prefix;

use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::wake::Hint;

const RELEASE: Statement =
    sql!("release_held", TEXT, TEXT, INT2, TEXT, TIMESTAMPTZ, INT8, TEXT, INT8);

/// Sheaves let through by one statement.
const PIECE: i64 = 1000;

/// The rules of a queue or pattern have changed: whoever is held by them may be held elsewhere now, or not at all. Each
/// is met once, so that it ends, whatever claims hold meanwhile.
pub(crate) async fn release(shared: &Shared, rule: &str) -> Result<()> {
    let mut gate = prefix(rule);
    let end = format!("{gate}{}", char::MAX);
    let (mut queue, mut band, mut tenant) = (String::new(), 0_i16, String::new());
    let (mut run_at, mut seq): (Option<At>, i64) = (None, 0);
    loop {
        let behind: [Param<'_>; 8] = [&gate, &queue, &band, &tenant, &run_at, &seq, &end, &PIECE];
        let piece = shared.db.read(&RELEASE, &behind).await?;
        let Some(last) = piece.first() else { return Ok(()) };
        (gate, queue, band, tenant) = (last.get(0), last.get(1), last.get(2), last.get(3));
        (run_at, seq) = (last.get(4), last.get(5));
        for queue in last.get::<_, Vec<String>>(7) {
            shared.hint(Hint::Ready { queue });
        }
        if !last.get::<_, bool>(6) {
            return Ok(());
        }
    }
}
