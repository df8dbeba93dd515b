//! `Idempotency-Key`: a request that is sent twice is done once, and answered alike.
//!
//! The key becomes the job's unique key, held for a day, and a second request joins the job of the first. It refuses
//! a key that comes back with another job, and one for a job that has a unique key of its own: which of them should
//! count?

use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};
use tidemill::{JobView, Tidemill};
use tidemill_core::job::unique::OnDuplicate;
use tidemill_core::{JobId, Unique, Wish};

use crate::problem::{Answer, Refusal};
use crate::taken::Print;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const KEY_BYTES_MAX: usize = 128;
/// How long a key is held.
const HELD: Duration = Duration::from_hours(24);

/// The key of a request, if it has one.
pub(crate) fn key(headers: &HeaderMap) -> Answer<Option<String>> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let detail = "the request has several Idempotency-Key headers; send the one that counts";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "idempotency_key_invalid", detail));
    }
    let text = value.to_str().unwrap_or_default().trim().trim_matches('"');
    if text.is_empty() || text.len() > KEY_BYTES_MAX {
        let detail =
            format!("an Idempotency-Key has between 1 and {KEY_BYTES_MAX} printable characters");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "idempotency_key_invalid", detail));
    }
    Ok(Some(text.to_owned()))
}

/// What lets a job be made once for this key. `index`: which of a batch. Callers of different tenants have different
/// keys, and no unique key that a caller gives is one of these.
pub(crate) fn unique(
    wish: &Wish,
    key: &str,
    index: Option<usize>,
    tenant: Option<&str>,
) -> Answer<Unique> {
    let says_own = wish.unique_key.is_some()
        || !wish.unique_by.is_empty()
        || wish.unique_print.is_some()
        || wish.unique_scope.is_some()
        || wish.on_duplicate.is_some()
        || wish.force;
    if says_own {
        let detail = "a job has either an Idempotency-Key or wishes about duplicates of its own";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "wish_contradiction", detail));
    }
    let index = index.map(|index| index.to_string()).unwrap_or_default();
    let parts = ["idempotency-key", tenant.unwrap_or_default(), &index, key];
    Ok(Unique::by_parts(parts).for_period(HELD).on_duplicate(OnDuplicate::Join))
}

/// Refuses a key that was used for another job.
pub(crate) async fn check(mill: &Tidemill, print: &Print, id: JobId) -> Answer<()> {
    let Some(JobView { job, bare, .. }) = mill.job(id).await? else { return Ok(()) };
    if print.is(mill, &job).await || bare && print.is_but_for_payload(mill, &job).await {
        return Ok(());
    }
    let detail = format!("this Idempotency-Key was used for another job, {id}; take a new key");
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    Err(Refusal::new(status, "idempotency_key_reused", detail).about(id))
}
