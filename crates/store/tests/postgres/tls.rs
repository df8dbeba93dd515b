//! TLS: every connection goes as safely as the URL asks for, or not at all.
//!
//! The servers of these tests take nothing but TLS.

use std::fs;

use tempfile::TempDir;
use tidemill_store::{Hint, OpenOptions, open};
use tidemill_testkit::Cluster;
use tidemill_testkit::certificate::{Authority, Certificate};
use tidemill_testkit::databases::fresh_postgres_url;

use super::kit::{ask, ids, job, store, worker};

/// A server that shows a certificate, and the files of roots.
struct Field {
    folder: TempDir,
    cluster: Cluster,
}

impl Field {
    async fn new(shown: Certificate) -> Self {
        let starting = tokio::task::spawn_blocking(move || Cluster::start_tls(&shown).unwrap());
        Self { folder: TempDir::new().unwrap(), cluster: starting.await.unwrap() }
    }

    fn root(&self, name: &str, certificate: &str) -> String {
        let file = self.folder.path().join(name);
        fs::write(&file, certificate).unwrap();
        file.to_str().unwrap().replace('/', "%2F")
    }

    fn url(&self, options: &str) -> String {
        format!("{}?{options}", self.cluster.url("postgres"))
    }

    /// The code and the words of the refusal, if it is one.
    async fn refusal(&self, url: &str) -> Option<(&'static str, String)> {
        let refused = open(url, OpenOptions::default()).await.err()?;
        Some((refused.code(), refused.to_string()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_goes_over_tls() {
    let authority = Authority::new().unwrap();
    let field = Field::new(authority.sign("127.0.0.1").unwrap()).await;
    let root = field.root("root.crt", &authority.certificate);
    for options in [
        String::new(),
        "sslmode=prefer".to_owned(),
        "sslmode=require".to_owned(),
        format!("sslmode=require&sslrootcert={root}"),
        format!("sslmode=verify-ca&sslrootcert={root}"),
        format!("sslmode=verify-full&sslrootcert={root}"),
    ] {
        let store = store(&field.url(&options)).await;
        // The pool, the reserved connection of the beats, and the one that listens.
        let (sent, worker) = (job(), worker(&store).await);
        let id = sent.id;
        store.enqueue(vec![sent]).await.unwrap();
        assert_eq!(ids(&store.claim(ask(worker, 1)).await.unwrap()), [id], "{options}");
        assert!(!store.beat(worker).await.unwrap().lost);
        assert_eq!(store.wake().listen().recv().await.unwrap(), Hint::Any, "{options}");
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_the_one_asked_for_is_refused_in_words() {
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let field = Field::new(authority.sign("127.0.0.1").unwrap()).await;
    let (root, wrong) = (
        field.root("root.crt", &authority.certificate),
        field.root("wrong.crt", &other.certificate),
    );
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = field.url(&format!("sslmode={mode}&sslrootcert={wrong}"));
        let (code, words) = field.refusal(&url).await.unwrap();
        assert_eq!(code, "store_tls_refused", "{mode}: {words}");
        assert!(words.contains("not signed by a trusted root"), "{mode}: {words}");
    }
    // By another name than the one in the certificate.
    let by_name = |mode: &str| {
        let url = field.url(&format!("sslmode={mode}&sslrootcert={root}"));
        url.replace("127.0.0.1", "localhost")
    };
    let (code, words) = field.refusal(&by_name("verify-full")).await.unwrap();
    assert_eq!(code, "store_tls_refused", "{words}");
    assert!(words.contains("localhost"), "{words}");
    assert_eq!(field.refusal(&by_name("verify-ca")).await, None, "the name is not looked at");
    // In the clear, which this server does not take.
    assert!(field.refusal(&field.url("sslmode=disable")).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_signed_itself_is_believed_when_it_is_the_root() {
    let itself = Certificate::of_itself("127.0.0.1").unwrap();
    let field = Field::new(itself.clone()).await;
    let other = Certificate::of_itself("127.0.0.1").unwrap();
    let root = field.root("root.crt", &itself.certificate);
    let wrong = field.root("wrong.crt", &other.certificate);
    for mode in ["verify-ca", "verify-full"] {
        let by = |root: &str| field.url(&format!("sslmode={mode}&sslrootcert={root}"));
        assert_eq!(field.refusal(&by(&root)).await, None, "{mode}");
        let (code, words) = field.refusal(&by(&wrong)).await.unwrap();
        assert_eq!(code, "store_tls_refused", "{mode}: {words}");
    }
    let by_name = field.url(&format!("sslmode=verify-full&sslrootcert={root}"));
    let by_name = by_name.replace("127.0.0.1", "localhost");
    assert_eq!(field.refusal(&by_name).await.unwrap().0, "store_tls_refused");
}

#[tokio::test]
async fn a_server_without_tls_is_used_only_where_the_url_lets_it() {
    let url = fresh_postgres_url();
    let with = |mode: &str| format!("{url}?sslmode={mode}");
    let refused = open(&with("require"), OpenOptions::default()).await.err().unwrap();
    assert_eq!(refused.code(), "store_tls_refused");
    assert!(refused.to_string().contains("does not speak TLS"), "{refused}");
    for mode in ["disable", "prefer"] {
        assert!(open(&with(mode), OpenOptions::default()).await.is_ok(), "{mode}");
    }
}
