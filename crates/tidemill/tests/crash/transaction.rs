//! The producer's own transactions: a row in its ledger and a job, together or not at all.

use anyhow::{Context, Result};
use rusqlite::TransactionBehavior;
use std::time::Duration;
use tidemill::{Enqueue, JobId, Receipt, Tidemill};
use tokio_postgres::NoTls;

use super::history::Way;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS ledger (id text PRIMARY KEY)";

/// A connection of the producer's own, made anew when it was lost.
pub struct Ledger {
    url: String,
    postgres: Option<tokio_postgres::Client>,
}

impl Ledger {
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), postgres: None }
    }

    /// Makes the table.
    pub async fn create(url: &str) -> Result<()> {
        match url.strip_prefix("sqlite:") {
            Some(file) => sqlite(file)?.execute_batch(CREATE)?,
            None => connect(url).await?.batch_execute(CREATE).await?,
        }
        Ok(())
    }

    /// All its rows.
    pub async fn rows(url: &str) -> Result<Vec<String>> {
        const ALL: &str = "SELECT id FROM ledger";
        if let Some(file) = url.strip_prefix("sqlite:") {
            let connection = sqlite(file)?;
            let mut statement = connection.prepare(ALL)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            return Ok(rows.collect::<rusqlite::Result<_>>()?);
        }
        let rows = connect(url).await?.query(ALL, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// A row and a job in one transaction, which is committed or rolled back.
    pub async fn enqueue(
        &mut self,
        mill: &Tidemill,
        job: Enqueue,
        id: JobId,
        way: Way,
    ) -> Result<Receipt> {
        let done = match self.url.strip_prefix("sqlite:") {
            Some(file) => in_sqlite(file, mill, job, id, way),
            None => self.in_postgres(mill, job, id, way).await,
        };
        if done.is_err() {
            self.postgres = None;
        }
        done
    }

    async fn in_postgres(
        &mut self,
        mill: &Tidemill,
        job: Enqueue,
        id: JobId,
        way: Way,
    ) -> Result<Receipt> {
        if self.postgres.is_none() {
            self.postgres = Some(connect(&self.url).await?);
        }
        let client = self.postgres.as_mut().context("just connected")?;
        let transaction = client.transaction().await?;
        transaction.execute("INSERT INTO ledger VALUES ($1)", &[&id.to_string()]).await?;
        let receipt = mill.enqueue_in(&transaction, job).await?;
        match way {
            Way::RolledBack => transaction.rollback().await?,
            _ => transaction.commit().await?,
        }
        Ok(receipt)
    }
}

fn in_sqlite(file: &str, mill: &Tidemill, job: Enqueue, id: JobId, way: Way) -> Result<Receipt> {
    let mut connection = sqlite(file)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT INTO ledger VALUES (?1)", [id.to_string()])?;
    let receipt = mill.enqueue_in_rusqlite(&transaction, job)?;
    match way {
        Way::RolledBack => transaction.rollback()?,
        _ => transaction.commit()?,
    }
    Ok(receipt)
}

fn sqlite(file: &str) -> Result<rusqlite::Connection> {
    let connection = rusqlite::Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

async fn connect(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
