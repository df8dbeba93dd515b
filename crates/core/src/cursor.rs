//! Cursors: where the next page of a list begins, in a form that says nothing to whoever carries it.
//!
//! A client that was told a place (`before` this id) writes the same cursor as the server would.

use std::fmt::Write;

/// The cursor that lets this list go on after this key.
pub fn write(list: &str, key: &str) -> String {
    let mut text = String::new();
    for byte in format!("{list}:{key}").bytes() {
        // A string takes whatever is written.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The key after which this list goes on; `None`: it is no cursor of this list.
pub fn read(list: &str, cursor: &str) -> Option<String> {
    let bytes = (0..cursor.len()).step_by(2).map(|at| {
        let digits = cursor.get(at..at + 2)?;
        u8::from_str_radix(digits, 16).ok()
    });
    let text = String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()?;
    // No key has a NUL, and not every database can be asked for one.
    let key = text.strip_prefix(list)?.strip_prefix(':')?;
    (!key.contains('\0')).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_to_its_own_list_alone() {
        let cursor = write("schedules", "nächtlich: 1");
        assert_eq!(read("schedules", &cursor).as_deref(), Some("nächtlich: 1"));
        let forged = write("schedules", "a\0b");
        for (list, cursor) in [
            ("runs", cursor.as_str()),
            ("schedules", "x"),
            ("schedules", "ffff"),
            ("schedules", &forged),
        ] {
            assert_eq!(read(list, cursor), None, "{list} {cursor}");
        }
    }
}
