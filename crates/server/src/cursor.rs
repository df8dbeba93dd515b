//! Cursors: where the next page of a list begins, in a form that says nothing to whoever carries it.
//!
//! It refuses one that was given by another list.

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

/// The cursor that lets this list go on after this key.
pub(crate) fn write(list: &str, key: &str) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for byte in format!("{list}:{key}").bytes() {
        // A string takes whatever is written.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The key after which this list goes on.
pub(crate) fn read(list: &str, cursor: Option<&str>) -> Answer<Option<String>> {
    let Some(cursor) = cursor else { return Ok(None) };
    let bytes = (0..cursor.len()).step_by(2).map(|at| {
        let digits = cursor.get(at..at + 2)?;
        u8::from_str_radix(digits, 16).ok()
    });
    let text = bytes.collect::<Option<Vec<u8>>>().and_then(|bytes| String::from_utf8(bytes).ok());
    let key = text.as_deref().and_then(|text| text.strip_prefix(list)?.strip_prefix(':'));
    match key {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(Refusal::request(format!(
            "{cursor:?} is no cursor of this list; give the `next` of the page before"
        ))),
    }
}

/// The same for a key that is an id.
pub(crate) fn read_id<T: std::str::FromStr>(list: &str, cursor: Option<&str>) -> Answer<Option<T>> {
    let wrong = |_| Refusal::request("the cursor is none of this list");
    read(list, cursor)?.map(|key| key.parse().map_err(|error: T::Err| wrong(error))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_to_its_own_list_alone() {
        let cursor = write("schedules", "nächtlich: 1");
        assert_eq!(read("schedules", Some(&cursor)).unwrap().unwrap(), "nächtlich: 1");
        for (list, cursor) in [("runs", cursor.as_str()), ("schedules", "x"), ("schedules", "ffff")]
        {
            assert!(read(list, Some(cursor)).is_err(), "{list} {cursor}");
        }
        assert_eq!(read("runs", None).unwrap(), None);
    }
}
