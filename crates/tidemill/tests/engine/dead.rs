//! Dead letters: replayed at a pace, stopped by a canary, edited, and redriven by a rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidemill::testing::{drain, tend};
use tidemill::{
    DeadFilter, Enqueue, ErrorClass, Fail, Flow, RedriveRule, ReplayPace, Running, State, Tidemill,
    Triage, Worker,
};

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    replay_stops_when_the_canary_dies_of_the_same,
    replay_goes_through_when_the_canaries_live,
    canary_that_does_not_finish_stops_the_replay,
    a_letter_that_is_refused_is_no_canary,
    edited_letter_is_replayed_with_its_new_payload,
    rule_redrives_what_it_matches_and_no_more_often_than_it_may,
    letters_are_grouped_noted_and_put_aside,
    what_is_on_its_way_is_not_given_up,
);

const LETTERS: u64 = 15;

fn broken(worker: Worker) -> Worker {
    worker.handle(|echo: Echo, _cx| async move {
        Err::<String, _>(Fail::permanent(format!("user {} not found", echo.text)))
    })
}

async fn letters(mill: &Tidemill) {
    mill.enqueue_many((0..LETTERS).map(|n| Echo::new(&n.to_string()))).await.unwrap();
    assert_eq!(drain(broken(mill.worker())).await.unwrap().dead, LETTERS);
}

fn pace(canary_wait: Duration) -> ReplayPace {
    ReplayPace { jobs_per_second: 1000, canary: true, canary_wait }
}

/// A worker that runs in the background; it works only once it is mended.
async fn mended(mill: &Tidemill, is_mended: bool) -> Running {
    let is_mended = Arc::new(AtomicBool::new(is_mended));
    let worker = mill.worker().handle(move |echo: Echo, _cx| {
        let is_mended = is_mended.load(Ordering::Relaxed);
        async move {
            let failure = Fail::permanent(format!("user {} not found", echo.text));
            if is_mended { Ok(echo.text) } else { Err(failure) }
        }
    });
    worker.start().await.unwrap()
}

async fn replay_stops_when_the_canary_dies_of_the_same(kit: Kit) {
    let mill = kit.open().await;
    letters(&mill).await;
    let running = mended(&mill, false).await;
    let all = DeadFilter::default();
    let report = mill.dead().replay(&all, "me", &pace(SOON), |_, _| {}).await.unwrap();
    assert_eq!((report.replayed, report.left), (1, LETTERS - 1));
    let canary = report.stopped_by.unwrap();
    running.stop().await;
    let dead = mill.dead().list(&all, None, 100).await.unwrap();
    assert_eq!(dead.len() as u64, LETTERS);
    let again = dead.iter().find(|letter| letter.id == canary).unwrap();
    assert_eq!(again.redrives, 1);
    assert!(again.notes.iter().any(|note| note.by == "me"));
}

async fn replay_goes_through_when_the_canaries_live(kit: Kit) {
    let mill = kit.open().await;
    letters(&mill).await;
    let running = mended(&mill, true).await;
    let mut told = Vec::new();
    let all = DeadFilter::default();
    let report = mill.dead().replay(&all, "me", &pace(SOON), |n, of| told.push((n, of))).await;
    let report = report.unwrap();
    assert_eq!((report.replayed, report.left, report.stopped_by), (LETTERS, 0, None));
    assert_eq!(told.first(), Some(&(1, LETTERS)));
    assert_eq!(told.last(), Some(&(LETTERS, LETTERS)));
    let sent = DeadFilter { triage: Some(Triage::Retrying), ..DeadFilter::default() };
    let sent = mill.dead().list(&sent, None, 100).await.unwrap();
    assert_eq!(sent.len() as u64, LETTERS);
    for letter in sent {
        assert_eq!(mill.wait(letter.id, SOON).await.unwrap().state, State::Done);
    }
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0);
    running.stop().await;
}

async fn canary_that_does_not_finish_stops_the_replay(kit: Kit) {
    let mill = kit.open().await;
    letters(&mill).await;
    let pace = pace(Duration::from_millis(50));
    let report = mill.dead().replay(&DeadFilter::default(), "me", &pace, |_, _| {}).await.unwrap();
    assert_eq!((report.replayed, report.left), (1, LETTERS - 1));
    assert!(report.unfinished_canary.is_some() && report.stopped_by.is_none());
}

/// Nothing is learnt of what could not be sent: the next one goes first.
async fn a_letter_that_is_refused_is_no_canary(kit: Kit) {
    let mill = kit.open().await;
    letters(&mill).await;
    let (ok, settings) = (|payload, _| async { Ok(payload) }, tidemill::Settings::default);
    let booking = Flow::saga("booking")
        .step("hotel", Enqueue::raw("book", "1"))
        .undo(Enqueue::raw("cancel", "1"))
        .step("card", Echo::new("x"))
        .after("hotel")
        .nothing_to_undo();
    let id = mill.start(booking).await.unwrap();
    let worker = broken(mill.worker()).handle_raw("book", settings(), ok);
    drain(worker.handle_raw("cancel", settings(), ok)).await.unwrap();
    assert_eq!(mill.flow(id).await.unwrap().unwrap().head.state.word(), "undone");
    let all = DeadFilter::default();
    assert_eq!(mill.dead().list(&all, None, 1).await.unwrap()[0].kind, "echo");
    let running = mended(&mill, false).await;
    let report = mill.dead().replay(&all, "me", &pace(SOON), |_, _| {}).await.unwrap();
    assert_eq!((report.replayed, report.left), (1, LETTERS - 1), "{report:?}");
    assert!(report.stopped_by.is_some());
    running.stop().await;
    mill.close().await;
}

async fn edited_letter_is_replayed_with_its_new_payload(kit: Kit) {
    let mill = kit.open_still().await;
    letters(&mill).await;
    let id = mill.dead().list(&DeadFilter::default(), None, 1).await.unwrap()[0].id;
    let error = mill.dead().replay_one(id, "me", Some("{")).await.unwrap_err();
    assert_eq!(error.code(), "payload_not_json");
    assert!(mill.dead().replay_one(id, "me", Some(r#"{"text":"mended"}"#)).await.unwrap());
    assert!(!mill.dead().replay_one(id, "me", None).await.unwrap(), "it is on its way already");
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    assert_eq!(drain(worker).await.unwrap().done, 1);
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.output.unwrap().as_str()), (State::Done, "\"mended\""));
}

async fn rule_redrives_what_it_matches_and_no_more_often_than_it_may(kit: Kit) {
    let mill = kit.open_still().await;
    letters(&mill).await;
    let rule = RedriveRule {
        name: "lost users".into(),
        kind: Some("echo".into()),
        queue: None,
        class: Some(ErrorClass::Permanent),
        error_contains: Some("user 7 ".into()),
        delay_ms: 60_000,
        redrives_max: 2,
    };
    mill.dead().set_rule(rule.clone()).await.unwrap();
    assert_eq!(mill.dead().rules().await.unwrap(), [rule]);
    tend(&mill).await.unwrap();
    assert_eq!(mill.unfinished().await.unwrap().waiting, 0, "its delay is not over");
    for redriven in [1, 1, 0] {
        kit.advance(Duration::from_mins(1));
        tend(&mill).await.unwrap();
        assert_eq!(drain(broken(mill.worker())).await.unwrap().dead, redriven);
    }
    mill.dead().delete_rule("lost users").await.unwrap();
    assert!(mill.dead().rules().await.unwrap().is_empty());
}

async fn letters_are_grouped_noted_and_put_aside(kit: Kit) {
    let mill = kit.open_still().await;
    letters(&mill).await;
    let (dead, all) = (mill.dead(), DeadFilter::default());
    let groups = dead.groups(&all).await.unwrap();
    assert_eq!((groups.len(), groups[0].count, groups[0].new), (1, LETTERS, LETTERS));
    assert_eq!(dead.sample(&all, 3).await.unwrap().len(), 3);
    let id = groups[0].sample;
    assert_eq!(dead.note(&[id], "ada", "seen").await.unwrap(), 1);
    assert_eq!(dead.triage(&[id], Triage::Investigated, "ada", "known").await.unwrap(), 1);
    let filter = DeadFilter { triage: Some(Triage::Investigated), ..DeadFilter::default() };
    let found = dead.list(&filter, None, 10).await.unwrap();
    let notes: Vec<_> = found[0].notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!((found.len(), notes), (1, vec!["seen", "investigated: known"]));
    dead.archive(&[id], "ada", "done with").await.unwrap();
    assert_eq!(dead.list(&all, None, 100).await.unwrap().len() as u64, LETTERS - 1);
}

async fn what_is_on_its_way_is_not_given_up(kit: Kit) {
    let mill = kit.open_still().await;
    letters(&mill).await;
    let dead = mill.dead();
    let all = dead.list(&DeadFilter::default(), None, 100).await.unwrap();
    let ids: Vec<_> = all.iter().map(|letter| letter.id).collect();
    dead.replay_one(ids[0], "ada", None).await.unwrap();
    for what in ["on its way", "recovered"] {
        for refused in [
            dead.triage(&ids, Triage::Abandoned, "ada", "hopeless").await.unwrap_err(),
            dead.archive(&ids, "ada", "old").await.unwrap_err(),
        ] {
            assert_eq!(refused.code(), "job_not_now");
            let said = refused.to_string();
            assert!(said.contains(&ids[0].to_string()) && said.contains(what), "{said}");
        }
        assert_eq!(dead.note(&ids[..1], "ada", "look").await.unwrap(), 1);
        let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
        drain(worker).await.unwrap();
    }
    let abandoned = DeadFilter { triage: Some(Triage::Abandoned), ..DeadFilter::default() };
    assert!(dead.list(&abandoned, None, 1).await.unwrap().is_empty(), "nor were the others");
    let refused = dead.triage(&ids[1..], Triage::Retrying, "ada", "hm").await.unwrap_err();
    assert_eq!(refused.code(), "word_unknown", "who is to be retried is replayed");
    assert_eq!(dead.archive(&ids[1..], "ada", "old").await.unwrap(), LETTERS - 1);
}
