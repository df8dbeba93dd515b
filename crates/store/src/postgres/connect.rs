//! Connections: a pool for ordinary work, and single ones for what must never wait for the pool.
//!
//! Everything on the pool is a single statement or an explicit transaction, and leaves nothing behind
//! in the session (no SET, no LISTEN), so that a pooler in transaction mode may stand in between.
//! Such a pooler is recognised when the store is opened (`dial.rs`); statements then go unnamed.
//!
//! All of them go the way the URL asks for (`tls.rs`): it refuses to connect with less.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts,
};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use tidemill_core::measure::{Histogram, SHORT_TIMES_US, Seen};
use tidemill_core::{Clock, NewJob};
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, Row};

use crate::error::{Error, Result};
use crate::keyring::Keyring;
use crate::open::{OpenOptions, without_password};
use crate::postgres::batch::is_large;
use crate::postgres::dial::{CONNECT_MAX, Dialer, Driver};
use crate::postgres::error::{Fault, Tries, is_shared_connection};
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::postgres::tls::Tls;

const REHEARSE: Statement = sql!("rehearse_claim");
pub(crate) const NOW: Statement = sql!("now", TIMESTAMPTZ);

const WAIT_MAX: Duration = Duration::from_secs(30);
/// Whoever falls silent in the middle of a transaction (frozen, cut off) holds locks that the rescue of
/// its jobs waits for; the server ends it. Only for this transaction: nothing stays in the session.
const BEGIN: &str = "begin; set local idle_in_transaction_session_timeout = '2s'";
/// The same for reads that are to see one and the same moment.
const BEGIN_SNAPSHOT: &str = "begin isolation level repeatable read read only; \
                              set local idle_in_transaction_session_timeout = '2s'";
/// The same for who has to think in the middle: a journal may have a million entries to decide on. And for who sends
/// much: what is on its way is silence to the server until all of it is there.
const BEGIN_THOUGHTFUL: &str = "begin; set local idle_in_transaction_session_timeout = '30s'";
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// With fewer connections than this, none is kept for claims.
const KEEP_MIN: usize = 4;

/// Where the database is, and the connections to it.
pub(crate) struct Db {
    config: Config,
    /// The same for people: hosts, ports and database, and no more.
    place: String,
    dialer: Dialer,
    pool: Pool,
    /// How long connections of the pool were waited for.
    waits: Histogram,
    /// The connection of the last claim, if it is kept. The first claim of a server process takes ten times as long
    /// as the next: it has all of it still to plan.
    claimer: Mutex<Option<Object>>,
    keeps_claimer: bool,
    rehearsed: AtomicBool,
    clock: Clock,
    /// For outputs that the edges of flows judge.
    keys: Keyring,
    /// Whether statements are prepared under a name.
    named: AtomicBool,
    /// Whether somebody stands in between and shares connections.
    shared: bool,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

impl Db {
    /// Connects, and looks who answers.
    pub async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        let (mut config, tls, prepare) = parse(url)?;
        let (mode, connector) = tls.connector()?;
        config.ssl_mode(mode);
        let (dialer, place) = (Dialer::new(connector), place(&config));
        let (config, shared) = dialer.meet(config).await.map_err(|fault| fault.at(&place))?;
        let manager = Manager::from_connect(
            config.clone(),
            dialer.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(options.connections_max.max(2))
            .runtime(Runtime::Tokio1)
            // The last one used: its server process has everything at hand. After a pause of 20 ms
            // that halves what a claim costs.
            .queue_mode(QueueMode::Lifo)
            .timeouts(Timeouts {
                wait: Some(WAIT_MAX),
                create: Some(CONNECT_MAX * 2),
                recycle: Some(CONNECT_MAX),
            })
            .build()
            .map_err(|e| Error::Database { reason: e.to_string() })?;
        let clock = options.clock.clone();
        Ok(Self {
            place,
            config,
            dialer,
            pool,
            waits: Histogram::new(SHORT_TIMES_US),
            claimer: Mutex::default(),
            // Behind a pooler the same connection is no server process of its own.
            keeps_claimer: options.connections_max >= KEEP_MIN && !shared,
            rehearsed: AtomicBool::new(false),
            clock,
            keys: options.keys.clone(),
            named: AtomicBool::new(prepare.unwrap_or(!shared)),
            shared,
        })
    }

    /// Where the database is, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// A connection of the pool.
    pub async fn conn(&self) -> Result<Conn<'_>, Fault> {
        Ok(self.using(self.pooled().await?, false))
    }

    async fn pooled(&self) -> Result<Object, Fault> {
        let asked = Instant::now();
        let client = self.pool.get().await.map_err(|error| Fault::from(error).at(&self.place))?;
        self.waits.see_time(asked.elapsed());
        Ok(client)
    }

    /// How long connections of the pool were waited for, so far.
    pub fn waits(&self) -> Seen {
        self.waits.read()
    }

    /// Connections of the pool by state.
    pub fn connections(&self) -> Vec<(&'static str, u64)> {
        let status = self.pool.status();
        let used = status.size.saturating_sub(status.available);
        vec![
            ("idle", status.available as u64),
            ("used", used as u64),
            ("max", status.max_size as u64),
        ]
    }

    /// A connection to claim by: the one of the claim before, unless somebody claims by it just now.
    pub async fn claimer(&self) -> Result<Conn<'_>, Fault> {
        let kept = self.kept().take().filter(|kept| !kept.is_closed());
        let client = match kept {
            Some(kept) => kept,
            None => self.pooled().await?,
        };
        let conn = self.using(client, self.keeps_claimer);
        if self.keeps_claimer && !self.rehearsed.swap(true, Ordering::Relaxed) {
            // Nothing depends on it.
            if let Err(fault) = conn.query(&REHEARSE, &[]).await {
                tracing::warn!(
                    ?fault,
                    "a claim could not be rehearsed: the first one will be slower"
                );
            }
        }
        Ok(conn)
    }

    fn using(&self, client: Object, is_kept: bool) -> Conn<'_> {
        Conn { client: Some(client), db: self, in_transaction: false, is_kept }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Object>> {
        self.claimer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of the pool with a transaction begun on it.
    pub async fn begin(&self) -> Result<Conn<'_>, Fault> {
        self.begin_by(BEGIN).await
    }

    /// The same for a transaction in which much is decided between two statements, or sent by one.
    pub async fn begin_thoughtful(&self) -> Result<Conn<'_>, Fault> {
        self.begin_by(BEGIN_THOUGHTFUL).await
    }

    /// The same for one that these jobs are written in.
    pub async fn begin_for(&self, jobs: &[&NewJob]) -> Result<Conn<'_>, Fault> {
        if is_large(jobs) { self.begin_thoughtful().await } else { self.begin().await }
    }

    /// The same for reads that are to see one and the same moment.
    pub async fn begin_snapshot(&self) -> Result<Conn<'_>, Fault> {
        self.begin_by(BEGIN_SNAPSHOT).await
    }

    async fn begin_by(&self, statements: &str) -> Result<Conn<'_>, Fault> {
        let mut conn = self.conn().await?;
        conn.in_transaction = true;
        conn.batch(statements).await?;
        Ok(conn)
    }

    /// A connection outside the pool.
    pub async fn single(&self) -> Result<Client, Fault> {
        let dialed = self.dialer.dial(&self.config).await;
        dialed.map(|(client, _)| client).map_err(|fault| fault.at(&self.place))
    }

    /// A connection outside the pool that is still to be driven, for one who listens.
    pub async fn undriven(&self) -> Result<(Client, Driver), tokio_postgres::Error> {
        self.dialer.undriven(&self.config).await
    }

    /// One statement on a connection of the pool.
    pub async fn query(&self, sql: &Statement, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        self.conn().await?.query(sql, params).await
    }

    /// One statement that may be sent again when its answer was lost: a read, or as good as one.
    pub async fn read(&self, sql: &Statement, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let mut tries = Tries::read();
        loop {
            match self.query(sql, params).await {
                Ok(rows) => return Ok(rows),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }

    /// One statement that must not be sent again when nobody knows whether it took effect.
    pub async fn write(&self, sql: &Statement, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let mut tries = Tries::once();
        loop {
            match self.query(sql, params).await {
                Ok(rows) => return Ok(rows),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }

    /// Whether the database answers. It is asked once: whoever wants to know has waited already.
    pub async fn is_there(&self) -> bool {
        self.query(&NOW, &[&self.manual_now()]).await.is_ok()
    }

    /// The time, if it is set by hand: what statements take as their first parameter.
    pub fn manual_now(&self) -> Option<At> {
        self.clock.manual().map(At)
    }

    /// The time by this machine, for comparing.
    pub fn machine_now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether time stands still until a test moves it.
    pub fn is_manual(&self) -> bool {
        self.clock.manual().is_some()
    }

    /// Whether a pooler shares connections between us and others.
    pub fn is_behind_pooler(&self) -> bool {
        self.shared
    }

    pub fn close(&self) {
        self.pool.close();
        self.dialer.close();
        drop(self.kept().take());
    }
}

/// A connection in use. Dropped in the middle of a transaction, it is closed, not given back.
pub(crate) struct Conn<'a> {
    client: Option<Object>,
    db: &'a Db,
    in_transaction: bool,
    /// Whether it is kept for the next claim, instead of given back.
    is_kept: bool,
}

impl Conn<'_> {
    /// For outputs that the edges of flows judge.
    pub fn keys(&self) -> &Keyring {
        &self.db.keys
    }

    fn client(&self) -> Result<&Object, Fault> {
        self.client.as_ref().ok_or_else(|| Fault::Lost("the connection was given up".into()))
    }

    /// Runs a statement. Several may be sent at once: they run one after the other.
    pub async fn query(&self, sql: &Statement, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let client = self.client()?;
        if !self.db.named.load(Ordering::Relaxed) {
            return unnamed(client, sql, params).await.map_err(|fault| fault.at(&self.db.place));
        }
        let run = async {
            let prepared = client.prepare_typed_cached(sql.text, sql.types).await?;
            client.query(&prepared, params).await
        };
        run.await.map_err(|error| {
            if is_shared_connection(&error) {
                tracing::info!("connections are shared by a pooler: statements go unnamed now");
                self.db.named.store(false, Ordering::Relaxed);
            }
            Fault::from(error).at(&self.db.place)
        })
    }

    /// Prepares a statement, unless that was done or would be in vain.
    pub async fn prepare(&self, sql: &Statement) -> Result<(), Fault> {
        if self.db.named.load(Ordering::Relaxed) {
            self.client()?.prepare_typed_cached(sql.text, sql.types).await?;
        }
        Ok(())
    }

    pub async fn batch(&self, text: &str) -> Result<(), Fault> {
        let done = self.client()?.batch_execute(text).await;
        done.map_err(|error| Fault::from(error).at(&self.db.place))
    }

    /// Commits what went well, and rolls back the rest.
    pub async fn end<T>(self, done: Result<T, Fault>) -> Result<T, Fault> {
        match done {
            Ok(done) => self.commit().await.map(|()| done),
            Err(fault) => {
                self.rollback().await?;
                Err(fault)
            }
        }
    }

    /// Ends the transaction well.
    pub async fn commit(mut self) -> Result<(), Fault> {
        self.batch("commit").await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Ends the transaction without effect.
    pub async fn rollback(mut self) -> Result<(), Fault> {
        self.batch("rollback").await?;
        self.in_transaction = false;
        Ok(())
    }
}

impl Drop for Conn<'_> {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if self.in_transaction {
            drop(Object::take(client));
        } else if self.is_kept && !self.db.pool.is_closed() {
            // Another one that was kept meanwhile goes back to the pool, behind the lock.
            let before = self.db.kept().replace(client);
            drop(before);
        }
    }
}

/// Runs a statement without naming it: parse, bind and execute in one message.
pub(crate) async fn unnamed(
    client: &Client,
    sql: &Statement,
    params: &[Param<'_>],
) -> Result<Vec<Row>, Fault> {
    let typed: Vec<_> = params.iter().copied().zip(sql.types.iter().cloned()).collect();
    Ok(client.query_typed(sql.text, &typed).await?)
}

/// Where the database is, for people: `db.example:5432/app`. Who connects, and with what password, is left out.
fn place(config: &Config) -> String {
    let ports = config.get_ports();
    let host = |(at, host): (usize, &Host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    };
    let hosts: Vec<_> = config.get_hosts().iter().enumerate().map(host).collect();
    let name = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{}/{name}", hosts.join(","))
}

/// Reads the URL: `prepare=on|off` and what is said of TLS are ours, the rest is the driver's.
fn parse(url: &str) -> Result<(Config, Tls, Option<bool>)> {
    let unknown = || Error::UrlUnknown { url: without_password(url) };
    let (place, options) = url.split_once('?').unwrap_or((url, ""));
    let (mut prepare, mut tls) = (None, Tls::default());
    let mut theirs = Vec::new();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("prepare", "on")) => prepare = Some(true),
            Some(("prepare", "off")) => prepare = Some(false),
            Some(("prepare", _)) => return Err(unknown()),
            Some((name, value)) => {
                let value = percent_decode_str(value).decode_utf8().map_err(|_| unknown())?;
                if !tls.take(name, &value) {
                    theirs.push(option);
                }
            }
            None => theirs.push(option),
        }
    }
    let url =
        if theirs.is_empty() { place.to_owned() } else { format!("{place}?{}", theirs.join("&")) };
    let mut config = Config::from_str(&url).map_err(|_| unknown())?;
    if config.get_application_name().is_none() {
        config.application_name("tidemill");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_MAX);
    }
    // A machine that vanished without a word is noticed in half a minute, not in two hours.
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENCE_MAX);
    }
    config.keepalives_idle(SILENCE_MAX / 2).keepalives_interval(SILENCE_MAX / 6);
    Ok((config, tls, prepare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_option_is_taken_out_of_the_url() {
        for (url, expected) in [
            ("postgres://a@h/d", None),
            ("postgres://a@h/d?prepare=off", Some(false)),
            ("postgres://a@h/d?application_name=x&prepare=on", Some(true)),
        ] {
            assert_eq!(parse(url).unwrap().2, expected, "{url}");
        }
        assert_eq!(
            parse("postgres://a@h/d?prepare=maybe").unwrap_err().code(),
            "store_url_unknown"
        );
    }

    #[test]
    fn a_place_says_where_and_not_by_whom() {
        for (url, shown) in [
            ("postgres://me:secret@db.example:6543/app", "db.example:6543/app"),
            ("postgres://me:secret@db.example/app?prepare=off", "db.example:5432/app"),
            ("postgres://me@one:1,two:2/app", "one:1,two:2/app"),
            ("postgres://me@[::1]:7/app", "[::1]:7/app"),
            ("postgres://me@%2Fvar%2Frun/app", "/var/run:5432/app"),
            ("postgres://me@db.example", "db.example:5432/me"),
        ] {
            assert_eq!(place(&parse(url).unwrap().0), shown, "{url}");
        }
    }

    #[test]
    fn what_is_said_of_tls_is_read_and_unescaped() {
        let (_, found, _) =
            parse("postgres://a@h/d?sslmode=verify-ca&sslrootcert=%2Fa%20b.crt").unwrap();
        let mut expected = Tls::default();
        assert!(expected.take("sslmode", "verify-ca") && expected.take("sslrootcert", "/a b.crt"));
        assert_eq!(found, expected);
        assert!(!expected.take("application_name", "x"));
    }
}
