//! Checks names: kinds, queues, tenants, keys and tags.

use crate::error::{Error, Result};

/// Refuses an empty name, one over `bytes_max`, one with control characters, and one that begins or ends with white
/// space: nobody sees that it is another.
pub fn check(what: &'static str, name: &str, bytes_max: usize) -> Result<()> {
    check_value(what, name, bytes_max)?;
    if name.trim() != name {
        let (name, reason) = (name.to_owned(), "begins or ends with white space; leave that out");
        return Err(Error::NameInvalid { what, name, reason });
    }
    Ok(())
}

/// The same for what is made of data, not chosen: white space may be a part of it.
pub fn check_value(what: &'static str, name: &str, bytes_max: usize) -> Result<()> {
    if name.is_empty() {
        return Err(Error::NameEmpty { what });
    }
    if name.len() > bytes_max {
        return Err(Error::NameTooLong { what, bytes: name.len(), bytes_max });
    }
    if name.chars().any(char::is_control) {
        let (name, reason) = (name.to_owned(), "contains a control character");
        return Err(Error::NameInvalid { what, name, reason });
    }
    Ok(())
}

/// What begins so is ours: whoever could put jobs there could have anything signed and sent as a webhook.
const OWN: &str = "tidemill:";

/// Whether a name is ours.
pub fn is_own(name: &str) -> bool {
    name.starts_with(OWN)
}

/// Refuses a name that is ours.
pub fn check_own(what: &'static str, name: &str) -> Result<()> {
    if is_own(name) {
        return Err(Error::NameReserved { what, name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged() {
        let code = |name: &str| check("queue", name, 8).err().map(|e| e.code());
        assert_eq!(code("mail"), None);
        assert_eq!(code("été"), None);
        assert_eq!(code(""), Some("name_empty"));
        assert_eq!(code("123456789"), Some("name_too_long"));
        assert_eq!(code("a\0b"), Some("name_invalid"));
        assert_eq!(code("a\nb"), Some("name_invalid"));
        for blank in [" ", " a", "a ", "a\u{a0}", "\u{3000}a"] {
            assert_eq!(code(blank), Some("name_invalid"), "{blank:?}");
            check_value("unique key", blank, 8).unwrap();
        }
        assert_eq!(code("a b"), None);
        let own = check_own("kind", crate::webhook::KIND).unwrap_err();
        assert_eq!(own.code(), "name_reserved");
        assert!(check_own("queue", crate::webhook::QUEUE).is_err());
        check_own("kind", "tidemills").unwrap();
    }
}
