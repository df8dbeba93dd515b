//! The few things tests need to know about a `postgres://` URL.
//!
//! Not a general parser: it splits `postgres://user:password@host:port/database?options`, which is
//! all that test servers use, and refuses what it cannot split. Percent-encoding is left as it is.

use anyhow::{Context, Result};

/// The parts of a server's URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) database: &'a str,
    pub(crate) options: &'a str,
}

impl<'a> ServerUrl<'a> {
    /// Splits a URL; the message of a refusal does not repeat its password.
    pub(crate) fn parse(url: &'a str) -> Result<Self> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .context("a server's URL begins with postgres://")?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, address) =
            server.rsplit_once('@').context("a server's URL names its user: user@host")?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "5432"));
        let port = port.parse().with_context(|| format!("`{port}` is not a port"))?;
        Ok(Self { user, password, host, port, database, options })
    }

    /// The URL of another database on the same server.
    pub(crate) fn with_database(&self, database: &str) -> String {
        let Self { user, password, host, port, options, .. } = self;
        let colon = if password.is_empty() { "" } else { ":" };
        let question = if options.is_empty() { "" } else { "?" };
        format!("postgres://{user}{colon}{password}@{host}:{port}/{database}{question}{options}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_is_replaced_and_the_rest_is_kept() {
        for (url, expected) in [
            ("postgres://a@h:1/x", "postgres://a@h:1/y"),
            ("postgresql://a:s@h/x?sslmode=disable", "postgres://a:s@h:5432/y?sslmode=disable"),
            ("postgres://a@h:1", "postgres://a@h:1/y"),
        ] {
            assert_eq!(ServerUrl::parse(url).unwrap().with_database("y"), expected);
        }
    }

    #[test]
    fn urls_without_a_user_or_scheme_are_refused() {
        for url in ["sqlite:x.db", "postgres://h:1/x", "postgres://a@h:port/x"] {
            assert!(ServerUrl::parse(url).is_err(), "{url}");
        }
    }
}
