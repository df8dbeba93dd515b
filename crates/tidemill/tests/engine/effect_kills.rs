//! A process is killed between the commit of its handler's own transaction and the settle of the job: what the handler
//! wrote is there once, whether a mark stands beside it or the job was settled in that transaction.

use std::process::Command;
use std::time::Duration;

use tidemill::store::request::RescueRules;
use tidemill::testing::drain;
use tidemill::{Context, Effect, Enqueue, Fail, JobId, Settings, State, Tidemill, Worker, effect};
use tidemill_testkit::Process;
use tokio_postgres::NoTls;

use super::kit::{Kit, SOON};

over_both_stores!(an_effect_is_there_once_when_its_process_is_killed_before_the_settle);

const URL: &str = "TIDEMILL_EFFECT_URL";
const WAY: &str = "TIDEMILL_EFFECT_WAY";
const CREATE: &str = "CREATE TABLE IF NOT EXISTS ledger (line bigint)";
const INSERT: &str = "INSERT INTO ledger VALUES (1)";
const COUNT: &str = "SELECT count(*) FROM ledger";

/// What the process does: it takes the job, commits, and is gone.
pub fn run() {
    let (Ok(url), Ok(way)) = (std::env::var(URL), std::env::var(WAY)) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        drain(worker(&mill, &url, &way, true)).await.unwrap();
    });
}

fn worker(mill: &Tidemill, url: &str, way: &str, dies: bool) -> Worker {
    let (url, way) = (url.to_owned(), way.to_owned());
    mill.worker().handle_raw("pay", Settings::default(), move |payload, cx| {
        let (url, way) = (url.clone(), way.clone());
        async move {
            let is_mark = way == "mark";
            if url.starts_with("sqlite:") {
                by_rusqlite(&url, &cx, is_mark)?;
            } else {
                by_tokio_postgres(&url, &cx, is_mark).await?;
            }
            if dies {
                std::process::abort();
            }
            Ok(payload)
        }
    })
}

fn connect(url: &str) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(url.strip_prefix("sqlite:").unwrap()).unwrap();
    connection.busy_timeout(SOON).unwrap();
    connection
}

fn by_rusqlite(url: &str, cx: &Context, is_mark: bool) -> Result<(), Fail> {
    let mut connection = connect(url);
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if is_mark {
        let Effect::Fresh(mark) = cx.effect_in_rusqlite::<()>(&tx, "")? else { return Ok(()) };
        tx.execute(INSERT, [])?;
        mark.record_in_rusqlite(&tx, &())?;
    } else {
        tx.execute(INSERT, [])?;
        cx.settle_in_rusqlite(&tx, &())?;
    }
    Ok(tx.commit()?)
}

async fn by_tokio_postgres(url: &str, cx: &Context, is_mark: bool) -> Result<(), Fail> {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let tx = client.transaction().await?;
    if is_mark {
        let Effect::Fresh(mark) = cx.effect_in::<()>(&tx).await? else { return Ok(()) };
        tx.execute(INSERT, &[]).await?;
        mark.record(&tx, &()).await?;
    } else {
        tx.execute(INSERT, &[]).await?;
        cx.settle_in(&tx, &()).await?;
    }
    Ok(tx.commit().await?)
}

async fn create(url: &str) {
    if url.starts_with("sqlite:") {
        connect(url).execute_batch(CREATE).unwrap();
        return effect::create_in_rusqlite(&connect(url)).unwrap();
    }
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(CREATE).await.unwrap();
    effect::create_in(&client).await.unwrap();
}

async fn lines(url: &str) -> i64 {
    if url.starts_with("sqlite:") {
        return connect(url).query_row(COUNT, [], |row| row.get(0)).unwrap();
    }
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.query_one(COUNT, &[]).await.unwrap().get(0)
}

async fn an_effect_is_there_once_when_its_process_is_killed_before_the_settle(kit: Kit) {
    let mill = kit.open().await;
    create(&kit.url).await;
    for (way, lines_before, lines_after) in [("mark", 1, 1), ("settle", 2, 2)] {
        let id: JobId = mill.enqueue(Enqueue::raw("pay", "7")).await.unwrap().id();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact"]).env(URL, &kit.url).env(WAY, way);
        let status = Process::spawn(&mut command).unwrap().wait(2 * SOON).unwrap();
        assert!(!status.success(), "{way}: it was killed");
        assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Running, "{way}");
        assert_eq!(lines(&kit.url).await, lines_before, "{way}: it had committed");
        let rules = RescueRules { lease_ttl: Duration::ZERO, clear_for: None, lost_max: 100 };
        mill.store().rescue(rules).await.unwrap();
        let drained = drain(worker(&mill, &kit.url, way, false)).await.unwrap();
        assert_eq!(drained.attempts, u64::from(way == "mark"), "{way}: settled is settled");
        assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Done, "{way}");
        assert_eq!(lines(&kit.url).await, lines_after, "{way}: once");
    }
}
