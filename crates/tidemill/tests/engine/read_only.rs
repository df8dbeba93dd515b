//! A database that cannot be written, or not be there: a clear error, at once.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use tidemill::Tidemill;
use tidemill_testkit::databases::fresh_sqlite_url;

use super::kit::{Echo, Kit};

/// Byte 18 of the file is the version a writer must know. An unknown one makes the file read-only,
/// for root as well, whom no file permission stops.
#[tokio::test]
async fn read_only_file_is_named_as_such() {
    let kit = Kit::sqlite();
    let mill = kit.open().await;
    mill.enqueue(Echo::new("x")).await.unwrap();
    mill.close().await;
    drop(mill);
    let path = kit.url.strip_prefix("sqlite:").unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[3], 18).unwrap();
    drop(file);
    let error = match Tidemill::open(&kit.url).await {
        Ok(mill) => mill.enqueue(Echo::new("y")).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.code(), "store_read_only", "{error}");
}

#[tokio::test]
async fn missing_folder_is_named() {
    let (folder, _url) = fresh_sqlite_url();
    let url = format!("sqlite:{}/no/such/folder/test.db", folder.path().display());
    let error = Tidemill::open(&url).await.unwrap_err();
    assert_eq!(error.code(), "store_unavailable", "{error}");
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

#[tokio::test]
async fn url_of_no_store_is_refused_without_its_password() {
    let error = Tidemill::open("mysql://me:secret@host/db").await.unwrap_err();
    assert_eq!(error.code(), "store_url_unknown");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn file_that_is_no_database_is_left_alone() {
    let (folder, url) = fresh_sqlite_url();
    let path = folder.path().join("test.db");
    let text = "this is a shopping list, not a database; do not touch it\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = Tidemill::open(&url).await.unwrap_err();
    assert_eq!(error.code(), "store_refused", "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
