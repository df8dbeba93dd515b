//! Empties the store between repeats, on a connection of its own. What a migration has filled stays.

use crate::Res;

pub async fn reset(url: &str) -> Res<()> {
    match url.strip_prefix("sqlite:") {
        Some(file) => sqlite(file.to_owned()).await,
        None => postgres(url).await,
    }
}

async fn sqlite(file: String) -> Res<()> {
    tokio::task::spawn_blocking(move || {
        let database = rusqlite::Connection::open(file)?;
        database.busy_timeout(std::time::Duration::from_secs(30))?;
        let mut tables = database.prepare(
            "select name from sqlite_master where type = 'table' and name like 'tidemill_%'
             and name not in ('tidemill_schema_version', 'tidemill_rulebook', 'tidemill_byte')",
        )?;
        let names: Vec<String> =
            tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for name in names {
            database.execute(&format!("delete from {name}"), [])?;
        }
        Ok(())
    })
    .await?
}

async fn postgres(url: &str) -> Res<()> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    let names = client
        .query(
            "select string_agg(format('tidemill.%I', tablename), ', ') from pg_tables
             where schemaname = 'tidemill' and tablename not in ('schema_version', 'rulebook', 'turn')",
            &[],
        )
        .await?;
    let names: String = names[0].get(0);
    client.batch_execute(&format!("truncate {names}")).await?;
    drop(client);
    connection.await??;
    Ok(())
}
