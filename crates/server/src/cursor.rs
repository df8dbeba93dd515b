//! Pages of lists: how many rows they have, and where the next one begins.
//!
//! It refuses a cursor that was given by another list.

pub(crate) use tidemill_core::cursor::write;

use crate::problem::{Answer, Refusal};

/// The most rows of one page.
pub(crate) const PAGE_MAX: u32 = 1000;
const PAGE_DEFAULT: u32 = 50;

/// The number of rows of a page, 50 unless given.
pub(crate) fn rows(limit: Option<u32>) -> Answer<usize> {
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Refusal::request(format!("a page has between 1 and {PAGE_MAX} rows")));
    }
    Ok(limit as usize)
}

/// The key after which this list goes on.
pub(crate) fn read(list: &str, cursor: Option<&str>) -> Answer<Option<String>> {
    let Some(cursor) = cursor else { return Ok(None) };
    let key = tidemill_core::cursor::read(list, cursor);
    key.map(Some).ok_or_else(|| {
        let detail =
            format!("{cursor:?} is no cursor of this list; give the `next` of the page before");
        Refusal::request(detail)
    })
}

/// The same for a key that is an id.
pub(crate) fn read_id<T: std::str::FromStr>(list: &str, cursor: Option<&str>) -> Answer<Option<T>> {
    let wrong = |_| Refusal::request("the cursor is none of this list");
    read(list, cursor)?.map(|key| key.parse().map_err(|error: T::Err| wrong(error))).transpose()
}
