//! What a credential of some queues reaches, and what of others it leaves as it was.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidemill::core::workflow::{ChildEnd, Entry};
use tidemill::store::tokio_postgres::{NoTls, connect};
use tidemill::testing::drain;
use tidemill::{Enqueue, Fail, Grant, Job, JobFilter, Payload, Role, Settings, State, Unique};

use super::kit::{Kit, Told};

over_both_stores!(
    a_job_that_holds_a_unique_key_is_changed_by_nobody_who_does_not_reach_it,
    a_batch_with_a_duplicate_that_is_out_of_reach_is_written_by_no_part,
    what_a_full_queue_sent_elsewhere_is_joined_by_its_sender,
    what_follows_a_job_changes_nothing_out_of_reach,
    a_schedule_changes_nothing_out_of_reach,
    a_flow_is_known_to_who_reaches_all_of_its_jobs,
    what_a_job_gets_of_others_is_shown_to_who_reaches_them_or_runs_it,
    what_children_return_is_shown_to_who_reaches_them_or_runs_the_run,
);

const SECRET: &str = "tulips-and-roses";

fn of(role: Role, queues: &[&str]) -> Grant {
    Grant { queues: queues.iter().map(|queue| (*queue).to_owned()).collect(), ..Grant::new(role) }
}

fn id_of(told: &Told) -> String {
    told.body["id"].as_str().unwrap().to_owned()
}

/// Nothing of the other's job.
#[track_caller]
fn says_nothing(told: &Told, id: &str) {
    let text = format!("{} {:?}", told.body, told.headers);
    assert!([SECRET, id].iter().all(|secret| !text.contains(secret)), "{text}");
}

/// A job of the queue `theirs` that holds the unique key `u`.
async fn held(kit: &Kit) -> String {
    let job = Enqueue::raw("echo", format!("{SECRET:?}")).queue("theirs");
    let job = job.unique(Unique::by_key("u")).delay(std::time::Duration::from_hours(1));
    kit.mill.enqueue(job).await.unwrap().id().to_string()
}

/// It is as it was, and nobody is kept for after it.
async fn is_untouched(kit: &Kit, id: &str) {
    let view = kit.mill.job(id.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(
        (&*view.job.queue, view.job.payload.as_str()),
        ("theirs", format!("{SECRET:?}").as_str())
    );
    assert_eq!(view.state, State::Scheduled);
}

async fn jobs_in(kit: &Kit, queue: &str) -> usize {
    let filter = JobFilter { queue: Some(queue.to_owned()), ..JobFilter::default() };
    kit.mill.jobs(&filter).await.unwrap().len()
}

async fn a_job_that_holds_a_unique_key_is_changed_by_nobody_who_does_not_reach_it(kit: Kit) {
    let kit = kit.closed().await;
    let some = kit.credential("some", of(Role::Producer, &["mine", "our:*"])).await;
    let id = held(&kit).await;
    for queue in ["mine", "our:own"] {
        for (word, value) in [
            ("on_duplicate", json!("replace")),
            ("on_duplicate", json!("debounce")),
            ("on_duplicate", json!("run_once_more")),
            ("on_duplicate", json!("join")),
            ("on_duplicate", json!("throttle")),
            ("on_duplicate", json!("reject")),
            ("force", json!(true)),
        ] {
            let mut wish = json!({ "kind": "echo", "queue": queue, "unique_key": "u" });
            wish[word] = value;
            if wish["on_duplicate"] == "throttle" {
                wish["unique_scope"] = json!("1h");
            }
            let told = kit.ask(&some, Method::POST, "/v1/jobs", wish).await;
            let told = told.refused(409, "duplicate_rejected", "does not reach");
            says_nothing(&told, &id);
            is_untouched(&kit, &id).await;
            assert_eq!(jobs_in(&kit, queue).await, 0);
        }
    }
    // Its own are replaced, from queue to queue.
    let own = |queue: &str| {
        let mut wish =
            json!({ "kind": "echo", "queue": queue, "unique_key": "own", "delay": "1h" });
        wish["on_duplicate"] = json!("replace");
        wish
    };
    let first = kit.ask(&some, Method::POST, "/v1/jobs", own("mine")).await.is(201);
    let second = kit.ask(&some, Method::POST, "/v1/jobs", own("our:own")).await.is(201);
    assert_eq!(second.body, json!({ "answer": "replaced", "id": first.body["id"] }));
    kit.close().await;
}

async fn a_batch_with_a_duplicate_that_is_out_of_reach_is_written_by_no_part(kit: Kit) {
    let kit = kit.closed().await;
    let some = kit.credential("some", of(Role::Producer, &["mine"])).await;
    let id = held(&kit).await;
    for policy in ["replace", "run_once_more", "join", "reject"] {
        let duplicate =
            json!({ "kind": "echo", "queue": "mine", "unique_key": "u", "on_duplicate": policy });
        let own = json!({ "kind": "echo", "queue": "mine" });
        let keyed = json!({ "kind": "echo", "queue": "mine", "unique_key": "another" });
        let jobs = json!({ "jobs": [own, keyed, duplicate, own] });
        let told = kit.ask(&some, Method::POST, "/v1/jobs/batch", jobs).await;
        let told = told.refused(409, "duplicate_rejected", "job 2");
        assert_eq!(told.body["index"], 2);
        says_nothing(&told, &id);
        is_untouched(&kit, &id).await;
        assert_eq!(jobs_in(&kit, "mine").await, 0, "{policy}");
    }
    kit.close().await;
}

async fn what_a_full_queue_sent_elsewhere_is_joined_by_its_sender(kit: Kit) {
    let kit = kit.closed().await;
    let admin = kit.credential("admin", of(Role::Admin, &[])).await;
    let rules = json!({ "depth_max": 1, "overflow": { "policy": "divert", "queue": "elsewhere" } });
    kit.ask(&admin, Method::PUT, "/v1/queues/mine/rules", rules).await.is(200);
    let some = kit.credential("some", of(Role::Producer, &["mine"])).await;
    let wish = |payload: u32| json!({ "kind": "echo", "queue": "mine", "payload": payload, "delay": "1h" });
    kit.ask(&some, Method::POST, "/v1/jobs", wish(1)).await.is(201);
    let bearer = format!("Bearer {some}");
    let headers = [("authorization", bearer.as_str()), ("idempotency-key", "k")];
    let send = async || kit.send(Method::POST, "/v1/jobs", &headers, wish(2)).await.is(201);
    let first = send().await;
    assert_eq!(first.body["queue"], "elsewhere");
    assert_eq!(id_of(&send().await), id_of(&first));
    kit.close().await;
}

async fn what_follows_a_job_changes_nothing_out_of_reach(kit: Kit) {
    let kit = kit.closed().await;
    let worker = kit.credential("worker", of(Role::Worker, &["mine"])).await;
    let id = held(&kit).await;
    let card = json!({ "name": "w", "queues": ["mine"], "kinds": ["echo"], "slots": 1 });
    let me = id_of(&kit.ask(&worker, Method::POST, "/v1/workers", card).await.is(201));
    for (number, policy) in ["replace", "debounce", "run_once_more"].into_iter().enumerate() {
        let wish = json!({ "kind": "echo", "queue": "mine" });
        kit.ask(&worker, Method::POST, "/v1/jobs", wish).await.is(201);
        let ask = json!({ "queues": ["mine"], "kinds": ["echo"], "jobs_max": 1, "wait": "30s" });
        let work = kit.ask(&worker, Method::POST, &format!("/v1/workers/{me}/claim"), ask).await;
        let work = work.is(200).body;
        let job = work["jobs"][0]["id"].clone();
        let follow_up =
            json!({ "kind": "echo", "queue": "mine", "unique_key": "u", "on_duplicate": policy });
        let outcome = json!({ "done": { "follow_ups": [follow_up] } });
        let report = json!({ "id": job, "token": work["token"], "outcome": outcome });
        let path = format!("/v1/workers/{me}/settle");
        let told = kit.ask(&worker, Method::POST, &path, json!({ "reports": [report] })).await;
        assert_eq!(told.is(200).body["answers"], json!(["accepted"]));
        is_untouched(&kit, &id).await;
        assert_eq!(jobs_in(&kit, "mine").await, number + 1, "{policy}");
    }
    kit.close().await;
}

async fn a_schedule_changes_nothing_out_of_reach(kit: Kit) {
    let kit = kit.closed().await;
    let some = kit.credential("some", of(Role::Operator, &["mine"])).await;
    let id = held(&kit).await;
    let job =
        json!({ "kind": "echo", "queue": "mine", "unique_key": "u", "on_duplicate": "replace" });
    let wish = json!({ "cron": "0 0 1 1 *", "overlap": "allow", "job": job });
    kit.ask(&some, Method::PUT, "/v1/schedules/one", wish.clone()).await.is(200);
    let ran = kit.ask(&some, Method::POST, "/v1/schedules/one/run", json!({})).await.is(200).body;
    assert_eq!((&ran["what"], &ran["job"]), (&json!("skipped"), &Value::Null));
    is_untouched(&kit, &id).await;
    let all = json!({ "schedules": { "two": wish } });
    kit.ask(&some, Method::PUT, "/v1/owners/me/schedules", all).await.is(200);
    kit.ask(&some, Method::POST, "/v1/schedules/two/run", json!({})).await.is(200);
    is_untouched(&kit, &id).await;
    assert_eq!(jobs_in(&kit, "mine").await, 0);
    kit.close().await;
}

async fn a_flow_is_known_to_who_reaches_all_of_its_jobs(kit: Kit) {
    let kit = kit.closed().await;
    let all = kit.credential("all", of(Role::Operator, &[])).await;
    let some = kit.credential("some", of(Role::Operator, &["mine"])).await;
    let acme = Grant { tenant: Some("acme".to_owned()), ..of(Role::Operator, &[]) };
    let acme = kit.credential("acme", acme).await;
    let start = async |flow: Value| {
        let told = kit.ask(&all, Method::POST, "/v1/flows", flow).await.is(201);
        format!("/v1/flows/{}", told.body["id"].as_str().unwrap())
    };
    let job = |queue: &str, tenant: &str| json!({ "kind": "echo", "queue": queue, "tenant": tenant, "delay": "1h" });
    let of_jobs = |jobs: Value| json!({ "name": "f", "steps": [{ "name": "a", "jobs": jobs }] });
    let looks = async |who: &str, path: &str| {
        let told = kit.ask(who, Method::GET, path, json!(null)).await;
        let reason = json!({ "reason": "no" });
        let cancel = kit.ask(who, Method::POST, &format!("{path}/cancel"), reason).await;
        let outputs =
            kit.ask(who, Method::GET, &format!("{path}/outputs?step=a"), json!(null)).await;
        (told.status, outputs.status, cancel.status)
    };
    let (seen, hidden) = ((200, 200, 200), (404, 404, 404));
    let own = of_jobs(json!([job("mine", "acme"), job("mine", "acme")]));
    assert_eq!(looks(&some, &start(own.clone()).await).await, seen);
    assert_eq!(looks(&acme, &start(own).await).await, seen);
    // It is the last of them that is not theirs.
    let path = start(of_jobs(json!([job("mine", "acme"), job("theirs", "acme")]))).await;
    assert_eq!((looks(&some, &path).await, looks(&acme, &path).await), (hidden, seen));
    let path = start(of_jobs(json!([job("mine", "acme"), job("mine", "other")]))).await;
    assert_eq!((looks(&acme, &path).await, looks(&some, &path).await), (hidden, seen));
    // One that undoes a step counts before it runs.
    let undo = json!({ "kind": "echo", "queue": "theirs" });
    let step = json!({ "name": "a", "kind": "echo", "queue": "mine", "undo": undo });
    let path = start(json!({ "name": "f", "saga": true, "steps": [step] })).await;
    assert_eq!(looks(&some, &path).await, hidden);
    // What is added to it later counts, too, also where it was looked at before.
    let jobs = json!([job("mine", "acme")]);
    let step = json!({ "name": "a", "jobs": jobs });
    let path = start(json!({ "name": "f", "building": true, "steps": [step] })).await;
    kit.ask(&some, Method::GET, &path, json!(null)).await.is(200);
    let mut more = job("theirs", "acme");
    more["id"] = json!(tidemill::JobId::new());
    let more = json!({ "step": "a", "jobs": [more] });
    kit.ask(&all, Method::POST, &format!("{path}/jobs"), more).await.is(200);
    assert_eq!(looks(&some, &path).await, hidden);
    kit.close().await;
}

async fn what_a_job_gets_of_others_is_shown_to_who_reaches_them_or_runs_it(kit: Kit) {
    let kit = kit.closed().await;
    let admin = kit.credential("root", Grant::new(Role::Admin)).await;
    let flow = json!({ "name": "f", "steps": [
        { "name": "theirs", "kind": "echo", "queue": "theirs", "payload": SECRET },
        { "name": "own", "kind": "run", "queue": "mine", "after": ["theirs"] },
    ] });
    let id = id_of(&kit.ask(&admin, Method::POST, "/v1/flows", flow).await.is(201));
    let worker = kit.mill.worker().queues(["theirs", "mine"]);
    let run = |_: Payload, cx: tidemill::Context| async move {
        let note = cx.step("note").run(|_| async { Ok(1) }).await?;
        cx.inputs().await?;
        Ok(Payload::trusted(note.to_string()))
    };
    let worker = worker.handle_raw("run", Settings::default(), run);
    let worker = worker.handle_raw("echo", Settings::default(), |payload, _| async { Ok(payload) });
    drain(worker).await.unwrap();
    let flow = kit.ask(&admin, Method::GET, &format!("/v1/flows/{id}"), json!({})).await.is(200);
    let own = flow.body["steps"][1]["first"].as_str().unwrap().to_owned();
    let paths = [
        format!("/v1/jobs/{own}/inputs"),
        format!("/v1/jobs/{own}/inputs/theirs"),
        format!("/v1/workflows/{own}/history"),
    ];
    for (name, grant, is_shown) in [
        ("viewer", of(Role::Viewer, &["mine"]), false),
        ("operator", of(Role::Operator, &["mine"]), false),
        ("hand", of(Role::Worker, &["mine"]), true),
        ("both", of(Role::Viewer, &["mine", "theirs"]), true),
    ] {
        let secret = kit.credential(name, grant).await;
        for path in &paths {
            let told = kit.ask(&secret, Method::GET, path, json!({})).await.is(200);
            assert_eq!(told.body.to_string().contains(SECRET), is_shown, "{name} {path}: {told:?}");
        }
    }
    kit.close().await;
}

/// Returns what it is given, so many times; for none it fails with it.
#[derive(Serialize, Deserialize)]
struct Theirs {
    word: String,
    times: usize,
}

impl Job for Theirs {
    const KIND: &'static str = "theirs";
    type Output = String;

    fn settings() -> Settings {
        Settings { queue: "theirs".into(), ..Settings::default() }
    }
}

async fn what_children_return_is_shown_to_who_reaches_them_or_runs_the_run(kit: Kit) {
    let kit = kit.closed().await;
    let id = kit.mill.enqueue(Enqueue::raw("run", "1").queue("mine")).await.unwrap().id();
    let run = |_: Payload, cx: tidemill::Context| async move {
        for times in [1, 0, 5000] {
            let _ = cx.child(Theirs { word: SECRET.into(), times }).await;
        }
        Ok(Payload::null())
    };
    let theirs = |Theirs { word, times }: Theirs, _: tidemill::Context| async move {
        if times == 0 { Err(Fail::permanent(word)) } else { Ok(word.repeat(times)) }
    };
    let worker = kit.mill.worker().queues(["theirs", "mine"]);
    let worker = worker.handle_raw("run", Settings::default(), run).handle(theirs);
    drain(worker).await.unwrap();
    let journal = kit.mill.journal(id).await.unwrap();
    let aside = journal.iter().rev().find(|recorded| recorded.entry.word() == "joined").unwrap();
    let paths = [
        (format!("/v1/jobs/{id}/mail"), "child"),
        (format!("/v1/jobs/{id}/journal"), "joined"),
        (format!("/v1/jobs/{id}/journal/{}", aside.number), "null"),
        (format!("/v1/workflows/{id}/history"), "joined"),
    ];
    for (name, grant, is_shown) in [
        ("viewer", of(Role::Viewer, &["mine"]), false),
        ("operator", of(Role::Operator, &["mine"]), false),
        ("hand", of(Role::Worker, &["mine"]), true),
        ("both", of(Role::Viewer, &["mine", "theirs"]), true),
    ] {
        let secret = kit.credential(name, grant).await;
        for (path, word) in &paths {
            let told = kit.ask(&secret, Method::GET, path, json!({})).await.is(200);
            let told = told.body.to_string();
            assert_eq!(told.contains(SECRET), is_shown, "{name} {path}: {told}");
            assert!(is_shown || told.contains(word), "{name} {path}: {told}");
        }
    }
    kit.close().await;
}

/// Counts the statements that look at jobs.
const COUNT: &str = "
    create sequence looks;
    create function tidemill.is_counted() returns boolean language plpgsql as $$
    begin
        if current_setting('looks.last', true) is distinct from statement_timestamp()::text then
            perform nextval('looks'), set_config('looks.last', statement_timestamp()::text, false);
        end if;
        return true;
    end $$;
    alter table tidemill.job rename to kept;
    create view tidemill.job as select * from tidemill.kept where tidemill.is_counted()";

#[tokio::test]
async fn which_of_many_children_are_reached_is_looked_up_at_once() {
    let kit = Kit::postgres().await.closed().await;
    let id = kit.mill.enqueue(Enqueue::raw("run", "1").queue("mine")).await.unwrap().id();
    let children = (0..300).map(|_| Enqueue::raw("echo", "1").queue("theirs"));
    let children = kit.mill.enqueue_many(children).await.unwrap();
    let joined = children.iter().enumerate().map(|(number, child)| {
        let output = Some(Payload::trusted(format!("{SECRET:?}")));
        let end = ChildEnd { id: child.id(), state: State::Done, output, error: None };
        let key = format!("k#{number}");
        let entry = Entry::Joined { key, ends: vec![end], more: false, aside: None };
        format!("('{id}', {number}, now(), '{}')", serde_json::to_string(&entry).unwrap())
    });
    let joined = joined.collect::<Vec<_>>().join(", ");
    let (client, connection) = connect(kit.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let insert = format!("insert into tidemill.journal (job, number, at, entry) values {joined}");
    client.batch_execute(&insert).await.unwrap();
    let secret = kit.credential("viewer", of(Role::Viewer, &["mine"])).await;
    client.batch_execute(COUNT).await.unwrap();
    let path = format!("/v1/jobs/{id}/journal");
    let told = kit.ask(&secret, Method::GET, &path, json!({})).await.is(200).body;
    assert_eq!(told["entries"].as_array().unwrap().len(), 300);
    assert!(!told.to_string().contains(SECRET), "{told}");
    let looks = client.query_one("select last_value from looks", &[]).await.unwrap();
    let looks: i64 = looks.get(0);
    assert!((2..30).contains(&looks), "{looks} statements");
    kit.close().await;
}
