//! What runs write beside their journals: places that are sealed, answers to mail, renewals, objects.

use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::{Content, ObjectKey, Origin, Waits};
use tidemill_core::{JobId, NewJob, OnDead, Options, Payload, Settlement};
use tidemill_store::Claim;
use tidemill_store::run::{Append, Keep, Renewal, Reply, Room, RunWrites, Seal, Signal};

use super::kit::*;

over_both_stores!(
    a_sealed_place_stays_sealed_and_a_written_one_is_told,
    a_lost_lease_seals_nothing,
    an_answer_is_given_once_and_kept_with_its_message,
    a_run_that_finished_gives_no_answer,
    a_renewal_empties_the_journal_and_keeps_the_mail_that_nobody_took,
    an_object_is_kept_with_the_end_of_its_job,
);

fn append(claim: &Claim, writes: RunWrites) -> Append {
    let token = claim.token.expect("a claim with jobs has a token");
    Append { job: claim.jobs[0].job.id, token, writes }
}

fn entry(number: u32, key: &str) -> RunWrites {
    let entries = vec![(number, format!(r#"{{"woke":{{"key":"{key}"}}}}"#))];
    RunWrites { entries, ..RunWrites::default() }
}

fn signal(to: JobId, payload: &str, id: Option<&str>) -> Vec<Signal> {
    let (name, payload) = ("x".to_owned(), json(payload));
    vec![Signal { to, name, payload, id: id.map(str::to_owned) }]
}

async fn a_sealed_place_stays_sealed_and_a_written_one_is_told(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    let seal =
        async |number| kit.store.seal(worker, append(&claim, entry(number, "seal"))).await.unwrap();
    kit.store.append(worker, vec![append(&claim, entry(3, "written"))]).await.unwrap();
    let Seal::Recorded(there) = seal(3).await else { panic!("it was written") };
    assert!(there.contains("written"), "{there}");
    assert_eq!(seal(4).await, Seal::Sealed);
    assert_eq!(seal(4).await, Seal::Sealed, "sent again, it is the same");
    kit.store.append(worker, vec![append(&claim, entry(4, "late"))]).await.unwrap();
    let journal = kit.store.journal(id).await.unwrap().0;
    assert!(journal[1].entry.contains("seal"), "{journal:?}");
}

async fn a_lost_lease_seals_nothing(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    kit.store.deregister(worker).await.unwrap();
    let sealed = kit.store.seal(worker, append(&claim, entry(0, "seal"))).await.unwrap();
    assert_eq!(sealed, Seal::Stale);
    assert!(kit.store.journal(id).await.unwrap().0.is_empty());
}

async fn an_answer_is_given_once_and_kept_with_its_message(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    assert_eq!(kit.store.reply(id, "1").await.unwrap(), Reply::Unknown);
    kit.store.signal(None, signal(id, "1", Some("1")), Room::default()).await.unwrap();
    kit.store.signal(None, signal(id, "2", Some("2")), Room::default()).await.unwrap();
    assert_eq!(kit.store.reply(id, "1").await.unwrap(), Reply::Pending);
    for answer in [r#"{"ok":7}"#, r#"{"ok":8}"#] {
        let answers = vec![(1, answer.to_owned())];
        let writes = RunWrites { answers, ..RunWrites::default() };
        kit.store.append(worker, vec![append(&claim, writes)]).await.unwrap();
    }
    assert_eq!(kit.store.reply(id, "1").await.unwrap(), Reply::Given(r#"{"ok":7}"#.to_owned()));
    assert_eq!(kit.store.reply(id, "2").await.unwrap(), Reply::Pending);
}

async fn a_run_that_finished_gives_no_answer(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take(worker, 1).await;
    kit.store.signal(None, signal(id, "1", Some("1")), Room::default()).await.unwrap();
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    assert_eq!(kit.store.reply(id, "1").await.unwrap(), Reply::Finished);
}

async fn a_renewal_empties_the_journal_and_keeps_the_mail_that_nobody_took(kit: &Kit) {
    let worker = kit.worker().await;
    let origins = vec![Origin { run: JobId::new(), until: 1 }];
    let given = Options { origins, tags: vec!["blue".to_owned()], ..Options::default() };
    let id = kit.put(NewJob { options: given.clone(), ..job("k") }).await;
    for (payload, sent) in [("1", Some("a")), ("2", None), ("3", Some("b")), ("4", None)] {
        kit.store.signal(None, signal(id, payload, sent), Room::default()).await.unwrap();
    }
    let renew = async |taken: Vec<i64>, payload: &str| {
        let claim = kit.take(worker, 1).await;
        let begins = RunWrites { begins: Some("v1".to_owned()), ..entry(0, "x") };
        kit.store.append(worker, vec![append(&claim, begins)]).await.unwrap();
        let waits = Waits { until: Some(kit.store.now().await.unwrap()), ..Waits::default() };
        let waiting = Waiting { waits, read: 0, spent: 0, parked: None };
        let mut item = item(&claim, 0, Settlement::Wait(Box::new(waiting)));
        let renewal = Renewal { payload: json(payload), version: "v2".to_owned(), taken };
        item.run = Some(Box::new(RunWrites { renewal: Some(renewal), ..RunWrites::default() }));
        kit.store.settle(worker, vec![item]).await.unwrap();
    };
    renew(vec![1, 2], "\"second\"").await;
    let (journal, run) = kit.store.journal(id).await.unwrap();
    assert!(journal.is_empty());
    let run = run.unwrap();
    assert_eq!((run.version.as_str(), run.signals_unread), ("v2", 2), "two were taken");
    let view = kit.store.job(id).await.unwrap().unwrap();
    assert_eq!(view.job.payload.as_str(), "\"second\"");
    let wishes = Options { turn: 1, origins: Vec::new(), ..given.clone() };
    assert_eq!(view.job.options, wishes, "its journal is its own");
    let mail = async || {
        let read = kit.store.mail(id, 0).await.unwrap();
        let left = read.into_iter().map(|mail| match mail.content {
            Content::Signal { payload, .. } => payload.as_str().to_owned(),
            other => format!("{other:?}"),
        });
        left.collect::<Vec<_>>()
    };
    assert_eq!(mail().await, ["Taken", "3", "4"]);
    // Its id is known until it continues once more.
    kit.store.signal(None, signal(id, "9", Some("a")), Room::default()).await.unwrap();
    assert_eq!(mail().await, ["Taken", "3", "4"]);
    renew(vec![1, 3], "null").await;
    assert_eq!(kit.store.job(id).await.unwrap().unwrap().job.options.turn, 2);
    assert_eq!(mail().await, ["Taken", "4"]);
    kit.store.signal(None, signal(id, "9", Some("a")), Room::default()).await.unwrap();
    assert_eq!(mail().await, ["Taken", "4", "9"], "numbers go on");
}

async fn an_object_is_kept_with_the_end_of_its_job(kit: &Kit) {
    let worker = kit.worker().await;
    let settle = async |key: &str, tenant: Option<&str>, object: Option<Keep>| {
        let tenant = tenant.map(str::to_owned);
        let options = Options { ordered: Some(OnDead::Skip), ..Options::default() };
        let key = Some(key.to_owned());
        kit.put(NewJob { key, tenant, options, ..job("k") }).await;
        let claim = kit.take(worker, 1).await;
        let mut item = item(&claim, 0, done());
        item.run = object
            .map(|object| Box::new(RunWrites { object: Some(object), ..RunWrites::default() }));
        kit.store.settle(worker, vec![item]).await.unwrap();
    };
    let read_of = async |key: &str, tenant: Option<&str>| {
        let meant = ObjectKey { key, tenant };
        let object: Option<Payload> = kit.store.object("default", meant).await.unwrap();
        object.map(|object| object.as_str().to_owned())
    };
    let read = async |key: &str| read_of(key, None).await;
    let this = |text| Some(Keep::This(json(text)));
    settle("a", None, this("[1]")).await;
    settle("b", None, this("[2]")).await;
    settle("a", None, None).await;
    assert_eq!((read("a").await.as_deref(), read("c").await), (Some("[1]"), None));
    settle("a", None, this("[3]")).await;
    settle("b", None, Some(Keep::Nothing)).await;
    assert_eq!((read("a").await.as_deref(), read("b").await), (Some("[3]"), None));
    // The same key of a tenant is another object.
    assert_eq!(read_of("a", Some("acme")).await, None);
    settle("a", Some("acme"), this("[4]")).await;
    settle("a", Some("other"), this("[5]")).await;
    let all = async || {
        [read("a").await, read_of("a", Some("acme")).await, read_of("a", Some("other")).await]
    };
    let texts = |texts: [Option<&str>; 3]| texts.map(|text| text.map(str::to_owned));
    assert_eq!(all().await, texts([Some("[3]"), Some("[4]"), Some("[5]")]));
    settle("a", Some("acme"), Some(Keep::Nothing)).await;
    settle("a", None, this("[6]")).await;
    assert_eq!(all().await, texts([Some("[6]"), None, Some("[5]")]));
}
