//! A cluster survives what tests do to it, and never survives its process.

use std::env;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tidemill_testkit::eventually::until;
use tidemill_testkit::{Cluster, Process};
use tokio_postgres::{Client, NoTls};

const DOOMED: &str = "TIDEMILL_TESTKIT_DOOMED";

async fn connect(cluster: &Cluster) -> Client {
    let connected = tokio_postgres::connect(&cluster.url("postgres"), NoTls).await;
    let (client, connection) = connected.expect("the cluster takes connections");
    tokio::spawn(connection);
    client
}

async fn folder_of(cluster: &Cluster) -> String {
    let row = connect(cluster).await.query_one("SHOW data_directory", &[]).await;
    row.expect("the superuser may see the folder").get(0)
}

#[tokio::test]
async fn committed_rows_survive_a_kill_and_a_stop() {
    let mut cluster = Cluster::start().unwrap();
    let url = cluster.url("postgres");
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)").await.unwrap();

    cluster.kill_9().unwrap();
    assert!(client.batch_execute("INSERT INTO t VALUES (2)").await.is_err());
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
    cluster.restart().unwrap();
    let client = connect(&cluster).await;
    client.batch_execute("INSERT INTO t VALUES (3)").await.unwrap();

    cluster.stop().unwrap();
    cluster.restart().unwrap();
    assert_eq!(url, cluster.url("postgres"));
    let row = connect(&cluster).await.query_one("SELECT sum(n) FROM t", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 4);
}

#[tokio::test]
async fn dropped_cluster_leaves_no_folder() {
    let cluster = Cluster::start().unwrap();
    let folder = folder_of(&cluster).await;
    assert!(Path::new(&folder).exists());
    drop(cluster);
    assert!(!Path::new(&folder).exists());
}

#[test]
fn cluster_dies_with_its_killed_process() {
    let mut ourselves = Command::new(env::current_exe().unwrap());
    ourselves.args(["--exact", "doomed_process", "--nocapture"]).env(DOOMED, "1");
    let mut doomed = Process::spawn(&mut ourselves).unwrap();
    let line = doomed.wait_for_line("folder ", Duration::from_mins(1)).unwrap();
    let folder = line.rsplit(' ').next().unwrap();
    assert!(Path::new(folder).exists());

    doomed.kill_9().unwrap();
    let gone = until(Duration::from_secs(30), || (!Path::new(folder).exists()).then_some(()));
    assert!(gone.is_some(), "{folder} is still there");
}

/// Not a test by itself: the process that the test above starts, and kills.
#[tokio::test]
async fn doomed_process() {
    if env::var_os(DOOMED).is_none() {
        return;
    }
    let cluster = Cluster::start().unwrap();
    println!("folder {}", folder_of(&cluster).await);
    thread::park();
}
