//! What every command needs: which store, and how to answer.
//!
//! It refuses to make a database by looking: a command that only reads does not create a SQLite
//! file, and says that there is none.

use std::path::Path;
use std::time::Duration;

use tidemill::{Builder, Keyring, Tidemill};

use crate::exit::{Exit, Failure, Outcome};
use crate::trail::Trail;

/// The store of commands that were told none.
pub const DEFAULT_STORE: &str = "sqlite:tidemill.db";

/// The choices that all commands share.
#[derive(Debug, Clone)]
pub struct App {
    /// The store that was named, if one was.
    pub store: Option<String>,
    /// Answer in JSON.
    pub json: bool,
    /// What the command leaves in the record of who did what.
    pub trail: Trail,
}

impl App {
    /// The store's URL.
    pub fn url(&self) -> &str {
        self.store.as_deref().unwrap_or(DEFAULT_STORE)
    }

    /// The option to repeat in a command that is suggested: none for the default store.
    pub fn store_option(&self) -> String {
        match &self.store {
            Some(url) if url != DEFAULT_STORE => format!(" --store {}", quoted(&shown_url(url))),
            _ => String::new(),
        }
    }

    /// Opens the store, makes it if need be, and brings its schema up to date.
    pub async fn open(&self) -> Outcome<Tidemill> {
        self.open_with(Tidemill::builder()).await
    }

    /// Opens the store with other choices.
    pub async fn open_with(&self, builder: Builder) -> Outcome<Tidemill> {
        let mill = builder.keys(keys()?).open(self.url()).await?;
        self.trail.begin(&mill).await?;
        Ok(mill)
    }

    /// Opens a store that should be there.
    pub async fn open_existing(&self) -> Outcome<Tidemill> {
        self.refuse_missing()?;
        self.open().await
    }

    /// Opens the store for a program that stays: a database that is away is waited for.
    pub async fn open_patiently(&self) -> Outcome<Tidemill> {
        const PAUSE_MAX: Duration = Duration::from_secs(5);
        let (keys, mut pause) = (keys()?, Duration::from_millis(100));
        loop {
            let error = match Tidemill::builder().keys(keys.clone()).open(self.url()).await {
                Ok(mill) => return Ok(mill),
                Err(tidemill::Error::Store(error)) if error.is_temporary() => error,
                Err(error) => return Err(error.into()),
            };
            tracing::warn!(%error, retry_in = ?pause, "the store cannot be opened yet");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = interrupted() => return Err(error.into()),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Says so when the store is a SQLite file that is not there.
    pub fn refuse_missing(&self) -> Outcome<()> {
        let Some(file) = sqlite_file(self.url()) else { return Ok(()) };
        if Path::new(file).exists() {
            return Ok(());
        }
        let message = format!("there is no database {file:?}");
        Err(Failure::new(Exit::Unavailable, "store_missing", message).hint(
            "`tidemill demo` or `tidemill enqueue` makes one; --store or TIDEMILL_STORE names another",
        ))
    }
}

/// What payloads are encrypted with. From the environment alone: everybody can read the words of a command.
pub fn keys() -> Outcome<Keyring> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    Ok(match (given("TIDEMILL_KEYS_FILE"), given("TIDEMILL_KEYS")) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("both TIDEMILL_KEYS_FILE and TIDEMILL_KEYS are set")
                .hint("keep one of them"));
        }
        (Some(file), None) => Keyring::read(Path::new(&file))?,
        (None, Some(text)) => Keyring::parse(&text.to_string_lossy())?,
        (None, None) => Keyring::default(),
    })
}

/// The file of a SQLite URL; `None` for other stores and for memory.
fn sqlite_file(url: &str) -> Option<&str> {
    let file = url.strip_prefix("sqlite:")?;
    let file = file.strip_prefix("//").unwrap_or(file);
    let file = file.split('?').next().unwrap_or(file);
    (!file.is_empty() && !file.starts_with(":memory:")).then_some(file)
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Completes at Ctrl-C or SIGTERM. Both are heard from this call on, not first when it is awaited.
pub fn interrupted() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let heard = |kind| {
        let signals = signal(kind).ok();
        async move {
            match signals {
                Some(mut signals) => drop(signals.recv().await),
                None => std::future::pending().await,
            }
        }
    };
    let (interrupt, terminate) = (heard(SignalKind::interrupt()), heard(SignalKind::terminate()));
    async move {
        tokio::select! {
            () = interrupt => {}
            () = terminate => {}
        }
    }
}

/// Who acts, where nobody said.
pub fn whoami() -> String {
    let named = std::env::var("USER").ok().filter(|user| !user.is_empty());
    named.unwrap_or_else(|| "cli".to_owned())
}

/// How this program was called, so that a suggested command can be repeated as it stands.
pub fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    if called.contains('/') { quoted(&called) } else { "tidemill".to_owned() }
}

/// A URL as it may be shown: without its password.
pub fn shown_url(url: &str) -> String {
    let parts = url.split_once("://").and_then(|(scheme, rest)| {
        let (user, host) = rest.rsplit_once('@')?;
        Some((scheme, user.split(':').next().unwrap_or_default(), host))
    });
    parts.map_or_else(|| url.to_owned(), |(scheme, user, host)| format!("{scheme}://{user}@{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_sqlite_can_be_missing() {
        assert_eq!(sqlite_file("sqlite:a/b.db"), Some("a/b.db"));
        assert_eq!(sqlite_file("sqlite::memory:"), None);
        assert_eq!(sqlite_file("postgres://host/db"), None);
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("sqlite:my.db"), "sqlite:my.db");
        assert_eq!(quoted("sqlite:my file.db"), "'sqlite:my file.db'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
