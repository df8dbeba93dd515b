//! Files that cannot be a store, or not be written: a clear error with its code, and not a byte
//! changed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use nix::unistd::{Uid, setfsuid};
use tidemill_store::{Error, OpenOptions, open};

use super::kit::Place;

/// Who owns nothing.
const NOBODY: u32 = 65_534;

/// Opens the store as one whom permissions bind, and says what came of it.
///
/// Root may write to everything, and tests often run as root. So the opening runs on a thread that
/// looks at files with nobody's eyes; threads it starts inherit them.
fn open_as_nobody(place: &Place) -> Error {
    let url = place.url.clone();
    let opening = thread::spawn(move || {
        if Uid::effective().is_root() {
            setfsuid(Uid::from_raw(NOBODY));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(open(&url, OpenOptions::default())).map(|_| ())
    });
    opening.join().unwrap().unwrap_err()
}

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_read_only_file_is_named_as_such() {
    let place = Place::with_a_job().await;
    set_mode(&place.file, 0o444);
    set_mode(place.folder.path(), 0o777);
    let before = place.files();
    let error = open_as_nobody(&place);
    assert_eq!(error.code(), "store_read_only", "{error}");
    assert!(error.to_string().contains("test.db"), "{error}");
    assert!(place.files() == before, "not a byte has changed, and no file was added");
}

#[tokio::test]
async fn a_file_in_a_read_only_folder_is_named_as_such() {
    let place = Place::with_a_job().await;
    set_mode(&place.file, 0o666);
    set_mode(place.folder.path(), 0o555);
    let before = place.files();
    let error = open_as_nobody(&place);
    set_mode(place.folder.path(), 0o755);
    assert_eq!(error.code(), "store_read_only", "{error}");
    assert!(error.to_string().contains(&*place.folder.path().to_string_lossy()), "{error}");
    assert!(place.files() == before, "not a byte has changed, and no file was added");
}

#[tokio::test]
async fn a_file_that_cannot_be_made_is_named() {
    let place = Place::new();
    set_mode(place.folder.path(), 0o555);
    let error = open_as_nobody(&place);
    set_mode(place.folder.path(), 0o755);
    assert_eq!(error.code(), "store_unavailable", "{error}");
    assert!(error.to_string().contains("test.db and it cannot be created"), "{error}");
    assert!(place.files().is_empty());
}

#[tokio::test]
async fn a_path_below_a_file_is_named() {
    let place = Place::with_a_job().await;
    let before = place.files();
    let below = format!("{}/below.db", place.url);
    let error = open(&below, OpenOptions::default()).await.map(|_| ()).unwrap_err();
    assert_eq!(error.code(), "store_unavailable", "{error}");
    assert!(error.to_string().contains("test.db"), "{error}");
    assert!(place.files() == before, "not a byte has changed, and no file was added");
}

#[tokio::test]
async fn a_folder_is_no_database() {
    let place = Place::new();
    fs::create_dir(&place.file).unwrap();
    let error = place.refusal().await;
    assert_eq!(error.code(), "store_unavailable", "{error}");
    assert!(error.to_string().contains("test.db"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let place = Place::new();
    fs::write(&place.file, "Dear database, this is a letter. ".repeat(200)).unwrap();
    let before = place.files();
    let error = place.refusal().await;
    assert_eq!(error.code(), "store_refused", "{error}");
    assert!(error.to_string().contains("not a database"), "{error}");
    assert!(place.files() == before, "not a byte has changed, and no file was added");
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let place = Place::with_a_job().await;
    let newer = "insert into tidemill_schema_version (number, checksum) values (999, 'x')";
    place.connect().execute_batch(newer).unwrap();
    let error = place.refusal().await;
    assert_eq!(error.code(), "schema_newer", "{error}");
    let jobs: i64 = place
        .connect()
        .query_one("select count(*) from tidemill_job", [], |row| row.get(0))
        .unwrap();
    assert_eq!(jobs, 1);
}

#[tokio::test]
async fn a_migration_that_is_not_ours_is_refused() {
    let place = Place::with_a_job().await;
    place.connect().execute_batch("update tidemill_schema_version set checksum = 1").unwrap();
    let error = place.refusal().await;
    assert_eq!(error.code(), "store_refused", "{error}");
    assert!(error.to_string().contains("migration 1"), "{error}");
}
