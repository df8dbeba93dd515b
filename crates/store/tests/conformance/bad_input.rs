//! What cannot be: refused with a stable code, at once, and nothing half-written.

use std::net::TcpListener;
use std::time::Duration;

use tidemill_core::dead::DeadFilter;
use tidemill_core::workflow::ObjectKey;
use tidemill_core::{FlowId, JobId, NewJob, Payload, PlanId};
use tidemill_store::audit::AuditFilter;
use tidemill_store::flow::{FlowAct, FlowFilter};
use tidemill_store::run::{RunAct, RunFilter, RunOrder};
use tidemill_store::schedule::Which;
use tidemill_store::view::JobFilter;
use tidemill_store::{OpenOptions, open};

use super::kit::{Kit, ask, job};

over_both_stores!(
    a_batch_with_a_bad_job_is_refused_whole,
    the_character_nul_is_refused_in_what_is_asked_for,
    the_store_works_on_after_a_refusal,
    a_memory_of_health_can_be_asked_for,
    a_closed_store_answers_with_an_error_or_not_at_all,
);

async fn code_of(url: &str) -> &'static str {
    let opening = open(url, OpenOptions::default());
    let answered = tokio::time::timeout(Duration::from_secs(20), opening).await;
    answered.expect("it answers quickly").map(|_| ()).unwrap_err().code()
}

#[tokio::test]
async fn an_unknown_url_is_named() {
    for url in ["", "mysql://me@host/db", "tidemill.db", "postgres:", "redis://host", "SQLITE:x"] {
        assert_eq!(code_of(url).await, "store_url_unknown", "{url:?}");
    }
}

#[tokio::test]
async fn passwords_do_not_reach_the_message() {
    let error = open("mysql://me:secret@host/db", OpenOptions::default()).await.map(|_| ());
    let shown = error.unwrap_err().to_string();
    assert!(shown.contains("mysql://me@host/db") && !shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://me:secret@127.0.0.1:{port}/db");
    assert_eq!(code_of(&url).await, "store_unavailable");
    let error = open(&url, OpenOptions::default()).await.map(|_| ()).unwrap_err();
    assert!(error.is_temporary() && !error.is_unknown());
    assert!(!error.to_string().contains("secret"));
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no/such/folder/x.db");
    let error = open(&format!("sqlite:{}", file.display()), OpenOptions::default()).await;
    let shown = error.map(|_| ()).unwrap_err().to_string();
    assert!(shown.contains("no/such/folder"), "{shown}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("letter.txt");
    let text = "Dear database, this is a letter. ".repeat(200);
    std::fs::write(&file, &text).unwrap();
    let error = open(&format!("sqlite:{}", file.display()), OpenOptions::default()).await;
    assert!(error.is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

/// The engine checks before it calls; a store that is called directly must still not write half.
async fn a_batch_with_a_bad_job_is_refused_whole(kit: &Kit) {
    let bad = NewJob { payload: Payload::trusted("{broken".into()), ..job("k") };
    let good = vec![job("k"), bad.clone(), job("k")];
    if kit.store.enqueue(good).await.is_err() {
        assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0, "nothing of the batch");
    }
    let nul = NewJob { tenant: Some("a\0b".into()), ..job("k") };
    let before = kit.store.unfinished().await.unwrap().waiting;
    if kit.store.enqueue(vec![job("k"), nul]).await.is_err() {
        assert_eq!(kit.store.unfinished().await.unwrap().waiting, before);
    }
}

async fn the_store_works_on_after_a_refusal(kit: &Kit) {
    let bad = || NewJob { tenant: Some("a\0b".into()), ..job("k") };
    let (_, ok, _) = tokio::join!(
        kit.store.enqueue(vec![bad()]),
        kit.store.enqueue(vec![NewJob { queue: "fine".into(), ..job("k") }]),
        kit.store.enqueue(vec![bad()]),
    );
    let id = ok.expect("one caller's trouble is not another's")[0].id();
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, "fine", 9)).await.unwrap();
    assert_eq!(claim.jobs[0].job.id, id);
}

async fn a_memory_of_health_can_be_asked_for(kit: &Kit) {
    let findings = kit.store.examine().await.unwrap();
    assert!(findings.len() >= 3, "{findings:?}");
    assert!(findings.iter().all(|finding| !finding.what.is_empty() && !finding.found.is_empty()));
    let unwell: Vec<_> = findings.iter().filter(|f| !f.ok && f.hint.is_none()).collect();
    assert!(unwell.is_empty(), "what is not well says what to do: {unwell:?}");
    assert!(["sqlite", "postgres"].contains(&kit.store.backend()));
}

async fn a_closed_store_answers_with_an_error_or_not_at_all(kit: &Kit) {
    kit.put(job("k")).await;
    let other = kit.neighbour().await;
    other.close().await;
    other.close().await;
    let asked = tokio::time::timeout(Duration::from_secs(20), other.job(JobId::new())).await;
    assert!(asked.is_ok(), "it does not hang");
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1, "others are not disturbed");
}

async fn the_character_nul_is_refused_in_what_is_asked_for(kit: &Kit) {
    const BAD: &str = "a\0b";
    let bad = || Some(BAD.to_owned());
    let (store, id, flow) = (&kit.store, JobId::new(), FlowId::new());
    let mut codes = Vec::new();
    macro_rules! told {
        ($($asked:expr),* $(,)?) => {
            $(codes.push((stringify!($asked), $asked.await.map(|_| ()).err().map(|e| e.code())));)*
        };
    }
    let jobs = |change: fn(&mut JobFilter)| {
        let mut filter = JobFilter::default();
        change(&mut filter);
        filter
    };
    let dead = DeadFilter { error_contains: bad(), ..DeadFilter::default() };
    let field = Some(("path".to_owned(), BAD.to_owned()));
    let inside = DeadFilter { payload_field: field, ..DeadFilter::default() };
    let flows = FlowFilter { name: bad(), ..FlowFilter::default() };
    let runs = RunFilter { kind: bad(), ..RunFilter::default() };
    let audit = AuditFilter { who: bad(), ..AuditFilter::default() };
    let page = Which::Page { owner: bad(), after: None, limit: 1 };
    let order = RunOrder { act: RunAct::Pause, by: BAD.into(), why: String::new() };
    let retry = FlowAct::Retry { step: None, by: BAD.into(), why: None };
    told![
        store.jobs(&jobs(|filter| filter.kind = Some("a\0b".into()))),
        store.jobs(&jobs(|filter| filter.tag = Some("a\0b".into()))),
        store.dead(&dead, None, 10),
        store.dead_groups(&inside),
        store.dead_replay(&[id], BAD.into(), None),
        store.dead_note(&[id], "ada", BAD, None, None),
        store.cancel(vec![id], BAD),
        store.flows(&flows),
        store.change_flow(flow, retry),
        store.change_flow(flow, FlowAct::Cancel { reason: BAD.into() }),
        store.runs(&runs),
        store.change_run(id, order),
        store.object("q", ObjectKey::new(BAD)),
        store.object("q", ObjectKey::new("k").tenant(BAD)),
        store.reply(id, BAD),
        store.audit(&audit),
        store.apply_plan(PlanId::new(), BAD, 1),
        store.schedules(&Which::Named(BAD.into())),
        store.schedules(&page),
        store.fires(BAD, 1),
        store.depths(&[BAD.to_owned()]),
        store.set_queue(BAD, None),
        store.set_redrive_rule(BAD, None),
    ];
    for (asked, code) in codes {
        assert_eq!(code, Some("name_invalid"), "{asked}");
    }
    kit.store.enqueue(vec![job("k")]).await.unwrap();
}
