//! Making connections, all in the same way, and finding out who answers.
//!
//! Two connections are made for that when the store is opened; they are the first ones that are used. A program that
//! asks for one thing and ends spends most of its time on connecting.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::Connect;
use futures::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, SimpleQueryMessage, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::postgres::error::{Fault, IntoAway};

/// For each host, and half of what a server may take that says nothing.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Plans by index, made once per connection: planning anew costs a claim as much as its work. Without an
/// index a table is still walked, at a price that would set off the compiler.
const BY_INDEX: &str = "-c enable_seqscan=off -c enable_bitmapscan=off -c jit=off \
                        -c plan_cache_mode=force_generic_plan";

/// What carries the words of a connection, encrypted or not.
pub(crate) type Driver = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A connection that is driven without a word: whoever uses it hears of its end by himself.
type Dialed = (Client, JoinHandle<()>);

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Dialer {
    tls: MakeRustlsConnect,
    /// Made to see who answers, and not used for anything yet.
    spare: Arc<Mutex<Vec<Dialed>>>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl Dialer {
    pub fn new(tls: MakeRustlsConnect) -> Self {
        Self { tls, spare: Arc::default() }
    }

    /// Connects for the first time. Answers how to go on, and whether a pooler shares connections between us and
    /// others.
    pub async fn meet(&self, config: Config) -> Result<(Config, bool), Fault> {
        let (config, (one, other)) = self.by_index(config).await?;
        let is_shared = are_shared(&one.0, &other.0).await?;
        self.spare().extend([other, one]);
        Ok((config, is_shared))
    }

    /// A connection; it may have been made before.
    pub async fn dial(&self, config: &Config) -> Result<Dialed, Fault> {
        in_time(self.any(config)).await
    }

    /// A connection that is still to be driven, for one who listens.
    pub async fn undriven(&self, config: &Config) -> Result<(Client, Driver), Error> {
        config.connect(self.tls.clone()).await
    }

    /// Lets go of what nobody has used.
    pub fn close(&self) {
        self.spare().clear();
    }

    async fn any(&self, config: &Config) -> Result<Dialed, Error> {
        while let Some(spare) = self.pop() {
            if !spare.0.is_closed() {
                return Ok(spare);
            }
        }
        self.fresh(config).await
    }

    async fn two(&self, config: &Config) -> Result<(Dialed, Dialed), Error> {
        tokio::try_join!(self.fresh(config), self.fresh(config))
    }

    async fn fresh(&self, config: &Config) -> Result<Dialed, Error> {
        // What greets a server over TLS is large, and two greet at once.
        let (client, connection) = Box::pin(self.undriven(config)).await?;
        let driving = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
        Ok((client, driving))
    }

    /// Statements go by an index wherever there is one. A plan that was made while a queue was empty
    /// would read whole tables instead, and be kept long after a million jobs have come.
    ///
    /// A pooler that knows no such option refuses it, and goes without: behind one every statement is
    /// planned anew, by the size the tables have then.
    async fn by_index(&self, config: Config) -> Result<(Config, (Dialed, Dialed)), Fault> {
        let theirs = config.get_options().unwrap_or_default();
        let mut wished = config.clone();
        wished.options(format!("{theirs} {BY_INDEX}").trim());
        let first = async {
            match self.two(&wished).await {
                Err(error) if may_refuse_options(&error) => {
                    self.two(&config).await.map(|both| (config, both))
                }
                connected => connected.map(|both| (wished, both)),
            }
        };
        in_time(first).await
    }

    fn pop(&self) -> Option<Dialed> {
        self.spare().pop()
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Dialed>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connect for Dialer {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<Dialed, Error>> {
        let config = config.clone();
        Box::pin(async move { self.any(&config).await })
    }
}

async fn in_time<T>(connecting: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
    match tokio::time::timeout(CONNECT_MAX * 2, connecting).await {
        Ok(connected) => connected.map_err(IntoAway::into_away),
        Err(_) => Err(Fault::Away("connecting took too long".into())),
    }
}

/// Whether it may be the options that somebody did not want. Who is not let in, asks for a database that is not there,
/// or comes while there is no room or the server starts or stops, would hear the same without them; and if not, would
/// go without them for good.
fn may_refuse_options(error: &Error) -> bool {
    error.as_db_error().is_some_and(|answer| {
        let code = answer.code();
        *code != SqlState::UNDEFINED_DATABASE
            && !["28", "53", "57"].iter().any(|class| code.code().starts_with(class))
    })
}

/// Two connections that are open at once have two different servers, each always the same one,
/// unless a pooler in transaction mode stands in between.
async fn are_shared(one: &Client, other: &Client) -> Result<bool, Fault> {
    let (mut ones, mut others) = (None, None);
    for _ in 0..4 {
        let (first, second) = (backend(one).await?, backend(other).await?);
        if first == second
            || *ones.get_or_insert(first.clone()) != first
            || *others.get_or_insert(second.clone()) != second
        {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn backend(client: &Client) -> Result<Option<String>, Fault> {
    let messages = client.simple_query("select pg_backend_pid()").await?;
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}
