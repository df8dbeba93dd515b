//! Opens the store that a URL names.

use std::sync::Arc;

use tidemill_core::Clock;

use crate::encrypted::Encrypted;
use crate::error::{Error, Result};
use crate::keyring::Keyring;
use crate::store::Store;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Bring the schema up to date. Defaults to true.
    pub migrate: bool,
    /// Which clock judges. Defaults to the store's own.
    pub clock: Clock,
    /// Connections for ordinary work on Postgres. Defaults to 8.
    pub connections_max: usize,
    /// What payloads and outputs are encrypted with. Defaults to no keys: they are not.
    pub keys: Keyring,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { migrate: true, clock: Clock::System, connections_max: 8, keys: Keyring::default() }
    }
}

/// Opens `sqlite:FILE`, `sqlite::memory:` or `postgres://…`.
pub async fn open(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>> {
    let keys = options.keys.clone();
    Ok(Arc::new(Encrypted::new(open_plain(url, options).await?, keys)))
}

async fn open_plain(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>> {
    #[cfg(feature = "sqlite")]
    if let Some(file) = url.strip_prefix("sqlite:") {
        return Ok(Arc::new(crate::sqlite::Sqlite::open(file, options).await?));
    }
    #[cfg(feature = "postgres")]
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Arc::new(crate::postgres::Postgres::open(url, options).await?));
    }
    let _ = options;
    Err(Error::UrlUnknown { url: without_password(url) })
}

/// A URL as it may be shown. A mistyped one has its password, too; where nobody can tell which part that is, all of it
/// that may be is left out.
pub fn without_password(url: &str) -> String {
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let (scheme, rest) = match url.find("://") {
        Some(at) if is_word(&url[..at]) => url.split_at(at + 3),
        // The path of a file may have any sign.
        _ if url.starts_with("sqlite:") => return url.to_owned(),
        _ => ("", url),
    };
    // Options have passwords, too; and a password may have an `@`, wherever it stands.
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let options = options.split('&').map(|option| match option.split_once('=') {
        Some((name, _)) if name.contains("password") => format!("{name}=…"),
        _ => option.to_owned(),
    });
    let options = options.collect::<Vec<_>>().join("&");
    let rest = if options.is_empty() { place.to_owned() } else { format!("{place}?{options}") };
    let Some((user, host)) = rest.rsplit_once('@') else { return format!("{scheme}{rest}") };
    let Some((user, password)) = user.split_once(':') else {
        return format!("{scheme}{user}@{host}");
    };
    if !scheme.is_empty() {
        return format!("{scheme}{user}@{host}");
    }
    let slashes = &password[..password.len() - password.trim_start_matches('/').len()];
    format!("{user}:{slashes}…@{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("postgres://me:secret@host/db", "postgres://me@host/db"),
            ("postgres://me:se@cret@host/db", "postgres://me@host/db"),
            ("postgres://host/db", "postgres://host/db"),
            ("postgres://me:se?cret@host/db", "postgres://me@host/db"),
            (
                "postgres://host/db?password=secret&prepare=on",
                "postgres://host/db?password=…&prepare=on",
            ),
            ("postgres://me@host/db?sslpassword=se@cret", "postgres://me@host/db?sslpassword=…"),
            ("mysql:x", "mysql:x"),
            ("sqlite:/home/me:us@here/a.db", "sqlite:/home/me:us@here/a.db"),
            // Mistyped ones, of which nobody knows what was meant to be the password.
            ("postgres:/me:secret@host/db", "postgres:/…@host/db"),
            ("postgres:me:se@cret@host/db", "postgres:…@host/db"),
            ("postgres//me:secret@host/db", "postgres//me:…@host/db"),
            ("postgres;//me:secret@host/db", "postgres;//me:…@host/db"),
            ("me:secret@host/db", "me:…@host/db"),
            ("me@host/db", "me@host/db"),
            (" postgres://me:secret@host/db", " postgres://…@host/db"),
            ("postgres:/me:se://cret@host/db", "postgres:/…@host/db"),
            ("postgres:/host/db?password=secret", "postgres:/host/db?password=…"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
