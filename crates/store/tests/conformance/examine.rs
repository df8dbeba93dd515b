//! The health of a store: what was emptied by hand is named, with what puts it back.

use tidemill_store::view::Finding;

use super::kit::{Kit, ask, job};

over_both_stores!(what_was_emptied_by_hand_is_named_and_can_be_put_back);

/// Runs a statement as somebody would by hand.
async fn by_hand(kit: &Kit, sql: &str) {
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        rusqlite::Connection::open(file).unwrap().execute_batch(sql).unwrap();
        return;
    }
    let (client, connection) =
        tokio_postgres::connect(&kit.url, tokio_postgres::NoTls).await.unwrap();
    let running = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    running.abort();
}

async fn unwell(kit: &Kit, tables: &[String]) -> Vec<Finding> {
    let findings = kit.store.examine().await.unwrap();
    let found: Vec<_> = findings.into_iter().filter(|found| tables.contains(&found.what)).collect();
    assert_eq!(found.len(), tables.len());
    found.into_iter().filter(|found| !found.ok).collect()
}

async fn what_was_emptied_by_hand_is_named_and_can_be_put_back(kit: &Kit) {
    let (prefix, tables) = match kit.store.backend() {
        "sqlite" => ("tidemill_", ["rulebook", "byte"]),
        _ => ("tidemill.", ["rulebook", "turn"]),
    };
    let names = tables.map(|table| format!("table {table}"));
    assert!(unwell(kit, &names).await.is_empty());
    let (worker, _) = (kit.worker().await, kit.put(job("k")).await);
    for table in tables {
        by_hand(kit, &format!("delete from {prefix}{table}")).await;
    }
    let claim = kit.store.claim(ask(worker, "default", 1)).await;
    assert!(
        claim.map_or(true, |claim| claim.jobs.is_empty()),
        "nothing is claimed without a rulebook"
    );
    let findings = unwell(kit, &names).await;
    assert_eq!(findings.iter().map(|found| &found.what).collect::<Vec<_>>(), names.each_ref());
    for Finding { found, hint, .. } in findings {
        assert!(found.starts_with("0 of "), "{found}");
        let hint = hint.unwrap();
        by_hand(kit, hint.split('`').nth(1).unwrap()).await;
    }
    assert!(unwell(kit, &names).await.is_empty(), "what the hints say helps");
    assert_eq!(kit.take(worker, 1).await.jobs.len(), 1);
}
