//! Plans: a claim must be quick on an empty database, a full one, and one with stale statistics,
//! because a prepared statement keeps its plan while the tables grow.

use std::fs;
use std::path::{Path, PathBuf};

use tidemill_store::ask::Question;
use tidemill_testkit::databases::fresh_postgres_url;
use tokio_postgres::Client;

use super::kit::{connect, store};

/// Scans that would walk a table that may be huge.
const BAD: [&str; 3] = ["Seq Scan on ready", "Seq Scan on job", "Seq Scan on outcome"];

fn statements() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres/sql")
}

fn text(name: &str) -> String {
    fs::read_to_string(statements().join(name)).unwrap()
}

#[tokio::test]
async fn every_statement_prepares() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let client = connect(&url).await;
    // The one table that stands in databases of others.
    client.batch_execute(Question::CreateEffects.postgres()).await.unwrap();
    let mut names = 0;
    for entry in fs::read_dir(statements()).unwrap() {
        let path = entry.unwrap().path();
        let prepared = client.prepare(&fs::read_to_string(&path).unwrap()).await;
        assert!(prepared.is_ok(), "{}: {:?}", path.display(), prepared.err());
        names += 1;
    }
    assert!(names > 50);
}

#[tokio::test]
async fn what_runs_and_is_called_off_is_found_by_one_hash_table() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let client = connect(&url).await;
    for (name, arguments) in [
        ("select_leases_holding.sql", "array[gen_random_uuid()]"),
        ("take_from_sheaves.sql", "array[1], array[gen_random_uuid()]"),
    ] {
        let plan = plan(&client, name, arguments).await;
        assert!(plan.contains("hashed SubPlan") && !plan.contains("Join"), "{name}: {plan}");
    }
}

/// Workers that take from patterns ask for them every second.
#[tokio::test]
async fn names_of_queues_are_found_without_looking_at_jobs() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let client = connect(&url).await;
    let rows = client.query(&format!("explain {}", text("queue_names.sql")), &[]).await.unwrap();
    let plan = rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n");
    assert!(!plan.contains(" on ready"), "{plan}");
}

/// A worker that starts looks at them, beside as many runs as there are.
#[tokio::test]
async fn parked_runs_are_found_by_an_index_of_their_own() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let client = connect(&url).await;
    client.batch_execute(FILL).await.unwrap();
    for when in ["never analysed", "analysed"] {
        let arguments = "gen_random_uuid(), 10, null, true";
        let plan = plan(&client, "list_parked_runs.sql", arguments).await;
        assert!(plan.contains("run_parked") && !plan.contains("Sort"), "{when}: {plan}");
        client.batch_execute("analyze tidemill.run, tidemill.job").await.unwrap();
    }
}

/// Alerts, rules and retention look again and again, beside as many as there are.
#[tokio::test]
async fn looks_at_the_dead_and_the_finished_walk_over_no_more_than_they_want() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let client = connect(&url).await;
    let lately = "'{}', null, null, null, null, null, null, now(), null, null, null, null, false, null, null, 10";
    let plan_of_lately = plan(&client, "select_dead.sql", lately).await;
    let bound = plan_of_lately.lines().find(|line| line.contains("Index Cond: ((died_at >="));
    assert!(bound.is_some() && plan_of_lately.contains("dead_died_at"), "{plan_of_lately}");
    let of_rule = "null, 60000, 3::int2, null, null, null, null, 100";
    let plan_of_rule = plan(&client, "select_redrivable.sql", of_rule).await;
    assert!(plan_of_rule.contains("using dead_new"), "{plan_of_rule}");
    client.batch_execute(FILL).await.unwrap();
    client.batch_execute("analyze tidemill.job, tidemill.outcome").await.unwrap();
    let of_page = plan(&client, "select_finished.sql", "gen_random_uuid(), 2000").await;
    assert!(!of_page.contains("hashed"), "{of_page}");
}

const SETTLE_ARGUMENTS: &str = "null, gen_random_uuid(), array[gen_random_uuid()], array['default'], \
     array[1], array[1]::int2[], array[0]::int2[], array['null'], array[1], array[2], '{}', array[0], '{}', '{}', \
     '{}', array[null]::uuid[], array[null]::int4[], '{}', '{}', '{}', '{}', '{}'";
const WORKER: &str = "00000000-0000-7000-8000-000000000001";
const CLAIM_ARGUMENTS: &str = "null, '00000000-0000-7000-8000-000000000001', gen_random_uuid(), \
     array['default','default'], array[1,2]::int2[], array[4,2], array[null,null]::timestamptz[], true, null, \
     array['',''], array[null,null]::text[], array[0,0], '{}', '{}', 500, 500, null, null";

/// How a session of the store plans.
const AS_OURS: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; \
     set enable_bitmapscan = off; deallocate all";

/// The plan that a prepared statement has when it does not look at its arguments.
async fn plan(client: &Client, name: &str, arguments: &str) -> String {
    client.batch_execute(AS_OURS).await.unwrap();
    client.batch_execute(&format!("prepare it as {}", text(name))).await.unwrap();
    let rows = client.query(&format!("explain execute it({arguments})"), &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

/// What one claim of 500 read of a table: walks over all of it, and rows found through its indexes.
async fn read_by_a_claim(client: &Client, table: &str) -> (i64, i64) {
    client.batch_execute(AS_OURS).await.unwrap();
    client.batch_execute(&format!("prepare it as {}", text("claim.sql"))).await.unwrap();
    let begin = format!(
        "begin; insert into tidemill.worker (id, name, queues, kinds, slots, reach, slots_of, started_at, beat_at)
         values ('{WORKER}', 'w', '{{}}', '{{}}', 500, 1000, '{{}}', now(), now())"
    );
    client.batch_execute(&begin).await.unwrap();
    let before = read_so_far(client, table).await;
    client.batch_execute(&format!("execute it({CLAIM_ARGUMENTS})")).await.unwrap();
    let after = read_so_far(client, table).await;
    client.batch_execute("rollback").await.unwrap();
    (after.0 - before.0, after.1 - before.1)
}

async fn read_so_far(client: &Client, table: &str) -> (i64, i64) {
    let read = "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables
        where schemaname = 'tidemill' and relname = $1";
    let row = client.query_one(read, &[&table]).await.unwrap();
    (row.get(0), row.get(1))
}

async fn check(client: &Client, when: &str) {
    for table in ["ready", "job", "outcome", "run"] {
        let (walks, rows) = read_by_a_claim(client, table).await;
        assert_eq!(walks, 0, "{when}: a claim walks {table}");
        assert!(rows <= 1_100, "{when}: a claim reads {rows} rows of {table}");
    }
    let plan_of_settle = plan(client, "settle_done.sql", SETTLE_ARGUMENTS).await;
    for bad in BAD {
        assert!(!plan_of_settle.contains(bad), "{when}: {plan_of_settle}");
    }
}

/// A hundred thousand jobs in sheaves of one: the most rows there can be for as many jobs. And as many runs that wait.
const FILL: &str = "
    with made as materialized (select tidemill.uuid7() as id, n from generate_series(1, 100000) n),
    waiting as (
        insert into tidemill.ready (seq, queue, priority, run_at, tenant, kind, ids)
        select n * 16384, 'default', 2, now(), '', 'k', array[id] from made),
    asleep as (insert into tidemill.run (job, began_at) select tidemill.uuid7(), now() from made)
    insert into tidemill.job (id, kind, queue, priority, sheaf, payload, created_at)
    select id, 'k', 'default', 2, n * 16384, '{}', now() from made";

#[tokio::test]
async fn claim_and_settle_never_walk_a_table() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let client = connect(&url).await;
    for table in ["ready", "job", "outcome", "lease", "run"] {
        let quiet = format!("alter table tidemill.{table} set (autovacuum_enabled = off)");
        client.batch_execute(&quiet).await.unwrap();
    }
    check(&client, "empty, never analysed").await;
    client.batch_execute("analyze").await.unwrap();
    check(&client, "analysed when empty").await;
    client.batch_execute(FILL).await.unwrap();
    check(&client, "full, by statistics of an empty database").await;
    client.batch_execute("analyze").await.unwrap();
    check(&client, "full and analysed").await;
}

/// The pages that a claim touches, by the server's own count.
async fn pages_of_a_claim(client: &Client, arguments: &str) -> i64 {
    client.batch_execute(AS_OURS).await.unwrap();
    client.batch_execute(&format!("prepare it as {}", text("claim.sql"))).await.unwrap();
    // The first one plans.
    client.batch_execute(&format!("execute it({arguments})")).await.unwrap();
    let explain = format!("explain (analyze, buffers, format json) execute it({arguments})");
    let row = client.query_one(&explain, &[]).await.unwrap();
    let explained: serde_json::Value = row.get(0);
    let plan = &explained[0]["Plan"];
    ["Shared Hit Blocks", "Shared Read Blocks"]
        .map(|name| plan[name].as_i64().unwrap())
        .iter()
        .sum()
}

#[tokio::test]
async fn dead_rows_that_nobody_may_remove_cost_a_claim_nothing() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let client = connect(&url).await;
    client
        .batch_execute("alter table tidemill.ready set (autovacuum_enabled = off)")
        .await
        .unwrap();
    client.batch_execute(FILL).await.unwrap();
    let holder = connect(&url).await;
    let hold = "begin isolation level repeatable read; select count(*) from tidemill.job";
    holder.batch_execute(hold).await.unwrap();
    // All are claimed, and the statistics are of an empty table: any plan looks as good as another.
    for each in ["delete from tidemill.ready", "analyze tidemill.ready"] {
        client.batch_execute(each).await.unwrap();
    }
    let begin = format!(
        "begin; insert into tidemill.worker (id, name, queues, kinds, slots, reach, slots_of, started_at, beat_at)
         values ('{WORKER}', 'w', '{{}}', '{{}}', 500, 1000, '{{}}', now(), now());
         insert into tidemill.ready (seq, queue, priority, run_at, tenant, kind, ids)
         select n, 'default', 2, now(), '', 'k', array[gen_random_uuid()] from generate_series(1, 20) n"
    );
    client.batch_execute(&begin).await.unwrap();
    let arguments = CLAIM_ARGUMENTS
        .replace("array[null,null]::timestamptz[]", "array[now(),now()]")
        .replace("500, 500", "2, 2");
    let pages = pages_of_a_claim(&client, &arguments).await;
    assert!(pages < 200, "{pages} pages for a claim of two jobs");
    client.batch_execute("rollback").await.unwrap();
    holder.batch_execute("rollback").await.unwrap();
}

/// A claim of 500 jobs under a limit by tenant that is counted, and never full.
const GATED_CLAIM: &str = "null, '00000000-0000-7000-8000-000000000001', gen_random_uuid(), array['default'], \
     array[2]::int2[], array[2], array[null]::timestamptz[], true, null, array[''], array[null]::text[], array[0], \
     '{}', '{}', 500, 500, '[{\"queue\":\"default\",\"gate\":\"g\",\"per\":1,\"most\":9}]', null";

/// So many jobs of each of so many tenants, in sheaves of three.
fn fill_of_tenants(tenants: u32, sheaves: u32) -> String {
    format!(
        "with sheaf as materialized (
            select 't' || t as tenant, array[tidemill.uuid7(), tidemill.uuid7(), tidemill.uuid7()] as ids,
                nextval('tidemill.lease_token_seq') as seq
            from generate_series(1, {tenants}) t, generate_series(1, {sheaves})
        ), waiting as (
            insert into tidemill.ready (seq, queue, priority, run_at, tenant, kind, ids)
            select s.seq, 'default', 2, now(), s.tenant, 'k', s.ids from sheaf s)
        insert into tidemill.job (id, kind, queue, priority, tenant, sheaf, payload, created_at)
        select i, 'k', 'default', 2, s.tenant, s.seq, '{{}}', now() from sheaf s, unnest(s.ids) i"
    )
}

/// A session plans when it does something for the first time, and that may be while there is next to nothing.
#[tokio::test]
async fn what_is_counted_at_gates_is_looked_up_by_plans_of_empty_tables() {
    let url = fresh_postgres_url();
    store(&url).await.close().await;
    let (client, other) = (connect(&url).await, connect(&url).await);
    for table in ["ready", "job", "lease", "permit", "gate"] {
        let empty = format!(
            "alter table tidemill.{table} set (autovacuum_enabled = off); analyze tidemill.{table}"
        );
        client.batch_execute(&empty).await.unwrap();
    }
    let begin = format!(
        "{AS_OURS}; prepare it as {};
         insert into tidemill.worker (id, name, queues, kinds, slots, reach, slots_of, started_at, beat_at)
         values ('{WORKER}', 'w', '{{}}', '{{}}', 500, 1000, '{{}}', now(), now())",
        text("claim.sql"),
    );
    client.batch_execute(&begin).await.unwrap();
    let free = client.prepare(&text("free_permits.sql")).await.unwrap();
    let claim = async || client.batch_execute(&format!("execute it({GATED_CLAIM})")).await.unwrap();
    let give_back = async || {
        let leases =
            "select array_agg(l.token), array_agg(g) from tidemill.lease l, unnest(l.gates) g";
        let row = client.query_one(leases, &[]).await.unwrap();
        let (tokens, gates): (Vec<i64>, Vec<String>) = (row.get(0), row.get(1));
        client.execute(&free, &[&tokens, &gates]).await.unwrap();
    };
    let end = async || client.batch_execute("delete from tidemill.lease").await.unwrap();
    // Everything is planned: with the gates in other hands, and without.
    client.batch_execute(&fill_of_tenants(3, 1)).await.unwrap();
    let lock = "begin; select from tidemill.turn where number in (
        select tidemill.turn_of('g' || chr(31) || 't' || n) from generate_series(1, 3) n) for update";
    other.batch_execute(lock).await.unwrap();
    claim().await;
    other.batch_execute("rollback").await.unwrap();
    claim().await;
    give_back().await;
    end().await;
    client.batch_execute(&fill_of_tenants(600, 20)).await.unwrap();
    let others = "insert into tidemill.permit (gate, token, held)
        select 'other' || n, n, 1 from generate_series(1, 20000) n";
    client.batch_execute(others).await.unwrap();
    let so_far = async || {
        let (ready, permit) =
            (read_so_far(&client, "ready").await, read_so_far(&client, "permit").await);
        (ready.1, permit.1)
    };
    let inside = async || {
        let held = "select coalesce(sum(held), -1) from tidemill.permit where gate like 'g%'";
        client.query_one(held, &[]).await.unwrap().get::<_, i64>(0)
    };
    client.batch_execute("begin").await.unwrap();
    other.batch_execute(lock).await.unwrap();
    let before = so_far().await;
    claim().await;
    let read = so_far().await.0 - before.0;
    assert!(read < 10_000, "a claim read {read} of 12,000 rows beside gates in other hands");
    assert_eq!(inside().await, 500);
    let passed_over = "select count(*) from tidemill.ready where line = 1";
    assert_eq!(client.query_one(passed_over, &[]).await.unwrap().get::<_, i64>(0), 3);
    client.batch_execute("rollback; begin").await.unwrap();
    other.batch_execute("rollback").await.unwrap();
    let before = so_far().await;
    claim().await;
    let after = so_far().await;
    let (rows, permits) = (after.0 - before.0, after.1 - before.1);
    assert!(rows < 10_000 && permits < 2000, "a claim read {rows} rows and {permits} permits");
    assert_eq!(inside().await, 500);
    for (what, left) in [("giving back", 0), ("the end of a lease", -1)] {
        let before = so_far().await.1;
        if left == 0 {
            give_back().await;
        } else {
            end().await;
        }
        let read = so_far().await.1 - before;
        assert!(read < 2000, "{what} read {read} of 20,500 permits");
        assert_eq!(inside().await, left);
    }
}
