//! What every command needs: which store or server, and how to answer.
//!
//! Commands ask for a [`Mill`], which is either; what only a store can do asks for one, and refuses a server.
//! It refuses to make a database by looking: a command that only reads does not create a SQLite
//! file, and says that there is none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidemill::{Builder as Opening, Keyring, Redaction, Tidemill};
use tidemill_client::{Builder, Client};
use tidemill_store::without_password;

use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output;
use crate::trail::Trail;

/// The store of commands that were told none.
pub const DEFAULT_STORE: &str = "sqlite:tidemill.db";

/// The choices that all commands share.
#[derive(Debug, Clone)]
pub struct App {
    /// The store that was named, if one was.
    pub store: Option<String>,
    /// The server that was named, if one was.
    pub server: Option<Server>,
    /// Answer in JSON.
    pub json: bool,
    /// What is not to be seen of payloads.
    pub hidden: Redaction,
    /// What the command leaves in the record of who did what.
    pub trail: Trail,
}

/// A server, and who asks it.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its URL.
    pub url: String,
    /// The file that has the secret of a credential; else `TIDEMILL_TOKEN` has it.
    pub token_file: Option<PathBuf>,
    /// A file with certificates to trust.
    pub ca_file: Option<PathBuf>,
}

impl Server {
    fn client(&self) -> Outcome<Client> {
        let token = self.token()?;
        let builder = token
            .into_iter()
            .fold(Client::builder(&self.url), |builder, token| builder.token(token.trim()));
        let trusted = self.ca_file.as_deref().map(read).transpose()?;
        Ok(trusted.into_iter().fold(builder, Builder::trust).build()?)
    }

    /// The secret of the credential, if there is one.
    pub fn token(&self) -> Outcome<Option<String>> {
        Ok(match &self.token_file {
            Some(file) => Some(read(file)?),
            // In a command that `work` runs it is the number that proves a lease, which is no secret of anybody.
            None => std::env::var("TIDEMILL_TOKEN")
                .ok()
                .filter(|token| token.contains(|c: char| !c.is_ascii_digit())),
        })
    }
}

fn read(file: &Path) -> Outcome<String> {
    std::fs::read_to_string(file).map_err(|error| Failure::from(error).at(file.display()))
}

/// Whether a URL is a server's.
pub fn is_server(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

impl App {
    /// The store's URL.
    pub fn url(&self) -> &str {
        self.store.as_deref().unwrap_or(DEFAULT_STORE)
    }

    /// The server or the store, for people to read.
    pub fn place(&self) -> String {
        let url = self.server.as_ref().map_or_else(|| self.url(), |server| &server.url);
        without_password(url)
    }

    /// The option to repeat in a command that is suggested: none for the default store.
    pub fn store_option(&self) -> String {
        if let Some(server) = &self.server {
            return format!(" --server {}", quoted(&without_password(&server.url)));
        }
        match &self.store {
            Some(url) if url != DEFAULT_STORE => {
                format!(" --store {}", quoted(&without_password(url)))
            }
            _ => String::new(),
        }
    }

    /// The server; or the store, which is made if need be, and whose schema is brought up to date.
    pub async fn open(&self) -> Outcome<Mill> {
        self.open_with(Tidemill::builder()).await
    }

    /// The same with other choices, which a server has made for itself.
    pub async fn open_with(&self, builder: Opening) -> Outcome<Mill> {
        match &self.server {
            Some(server) => Ok(Mill::Server(server.client()?)),
            None => Ok(Mill::Store(self.opened(builder).await?)),
        }
    }

    /// The store, opened; what the command is about to do is written down there. A server does so itself.
    async fn opened(&self, builder: Opening) -> Outcome<Tidemill> {
        let builder = builder.keys(keys()?).hide(self.hidden.clone());
        let mill = builder.open(self.url()).await?;
        self.trail.begin(&mill).await?;
        Ok(mill)
    }

    /// The server; or the store, which should be there.
    pub async fn open_existing(&self) -> Outcome<Mill> {
        self.refuse_missing()?;
        self.open().await
    }

    /// Refuses a server, where only a store will do.
    pub fn refuse_server(&self, why: &str) -> Outcome<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let url = without_password(&server.url);
        let message = format!("this works on a store, and {url} is a server: {why}");
        Err(Failure::new(Exit::Usage, "store_needed", message)
            .hint("run it where the store is, with --store sqlite:FILE or postgres://…"))
    }

    /// Opens the store for a program that stays: a database that is away is waited for.
    pub async fn open_patiently(&self, why: &str) -> Outcome<Tidemill> {
        self.refuse_server(why)?;
        let keys = keys()?;
        let open = async || {
            let builder = Tidemill::builder().keys(keys.clone()).hide(self.hidden.clone());
            builder.open(self.url()).await
        };
        let is_away = |error: &tidemill::Error| matches!(error, tidemill::Error::Store(error) if error.is_temporary());
        patiently(open, is_away).await
    }

    /// The store or the server, for a program that stays: one that is away is waited for.
    pub async fn join_patiently(&self) -> Outcome<Mill> {
        let Some(server) = &self.server else {
            return Ok(Mill::Store(self.open_patiently("").await?));
        };
        let client = server.client()?;
        patiently(async || client.now().await, tidemill_client::Error::is_temporary).await?;
        Ok(Mill::Server(client))
    }

    /// Says so when the store is a SQLite file that is not there.
    pub fn refuse_missing(&self) -> Outcome<()> {
        if self.server.is_some() {
            return Ok(());
        }
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

/// Tries again for as long as it is away, unless somebody wants it to end.
async fn patiently<T, E: Into<Failure> + std::fmt::Display>(
    open: impl AsyncFn() -> Result<T, E>,
    is_away: impl Fn(&E) -> bool,
) -> Outcome<T> {
    const PAUSE_MAX: Duration = Duration::from_secs(5);
    let mut pause = Duration::from_millis(100);
    loop {
        let error = match open().await {
            Ok(opened) => return Ok(opened),
            Err(error) if is_away(&error) => error,
            Err(error) => return Err(error.into()),
        };
        tracing::warn!(%error, retry_in = ?pause, "it cannot be reached yet");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = interrupted() => return Err(error.into()),
        }
        pause = (pause * 2).min(PAUSE_MAX);
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

/// Completes at Ctrl-C or SIGTERM, and when nobody gets what is said. Signals are heard from this call on, not first
/// when it is awaited.
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
            () = output::broken() => {}
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
