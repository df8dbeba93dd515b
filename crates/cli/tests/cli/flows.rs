//! Flows from the shell: started from JSON, drawn, followed, waited for, called off, tried again.

use std::io::Write;
use std::process::Stdio;

use tidemill_testkit::Process;
use tidemill_testkit::eventually::until;

use crate::mill::{Mill, PATIENCE, stop};

const SIGN_UP: &str = r#"{"name": "signup", "steps": [
    {"name": "account", "kind": "account", "payload": {"user": 9007199254740993}},
    {"name": "mail", "kind": "mail", "payloads": [1, 2, 3], "after": ["account"]},
    {"name": "keys", "kind": "keys", "after": ["account"], "retry": {"attempts_max": 1}},
    {"name": "vip", "kind": "mail", "after": [{"step": "account", "when": "output > 100"}]},
    {"name": "ready", "kind": "mail", "after": ["mail", "keys"]}
]}"#;

fn start(mill: &Mill, text: &str) -> String {
    mill.run_with(&["flows", "start", "-"], text).ok().stdout.trim().to_owned()
}

fn life(mill: &Mill) {
    let id = start(mill, SIGN_UP);
    let rows = mill.rows(&["flows", "list", "--state", "running", "--name", "signup", "--json"]);
    assert_eq!((rows[0]["id"].as_str(), rows[0]["jobs"].as_u64()), (Some(&*id), Some(7)));
    assert!(mill.rows(&["flows", "list", "--state", "done", "--json"]).is_empty());
    mill.run(&["flows"]).ok().says(&id).says("5/5").says("running");
    let shown = mill.run(&["flows", "show", &id]).ok().says("0 of 7 jobs done, 7 left");
    let steps: Vec<_> = shown.stdout.lines().skip(4).collect();
    let begins =
        ["● account", "├─ ○ mail", "├─ ○ keys", "├─ ○ vip", "└─ ○ ready"].iter().zip(&steps);
    for (begin, line) in begins {
        assert!(line.starts_with(begin), "{line:?} does not begin with {begin:?}");
    }
    assert!(steps[1].contains("────────────  0/3") || steps[1].contains("──────────── 0/3"));
    assert!(steps[3].ends_with("after account if output > 100"), "{steps:?}");
    assert!(steps[4].ends_with("after mail, keys"), "{steps:?}");

    // The keys fail as long as a file is not there.
    let there = mill.file("keys");
    let exec = format!(
        "if [ $TIDEMILL_KIND = keys ]; then [ -e {there} ] || {{ echo no keys >&2; exit 64; }}; fi; echo 7"
    );
    let watch = ["flows", "show", &*id, "--watch"];
    let follower = Process::spawn(&mut mill.command(&watch)).unwrap();
    let worker = mill.work(&["--exec", &exec, "--kind", "account,mail,keys"]);
    follower.wait_for_line("is failed: 7 jobs, 4 done, 1 failed, 2 skipped", PATIENCE).unwrap();
    let wait = ["flows", "wait", &*id, "--timeout", "30s"];
    mill.run(&wait).code(1).says("is failed");
    mill.run(&["flows", "show", &id])
        .ok()
        .says("✘ failed")
        .says("no keys")
        .says("skipped: keys failed");
    mill.run(&["flows", "show", &id]).ok().says("after account if output > 100 ✘");
    let step = |at: usize| mill.json(&["flows", "show", &id, "--json"])["steps"][at].clone();
    assert_eq!(
        (step(3)["state"].as_str(), step(4)["state"].as_str()),
        (Some("skipped"), Some("skipped"))
    );

    std::fs::write(&there, "").unwrap();
    mill.run(&["flows", "retry", &id, "--step", "nobody"]).code(3).says("step_unknown");
    mill.run(&["flows", "retry", &id, "--step", "keys", "--by", "ada"])
        .ok()
        .says("1 job is on its");
    let ended = mill.json(&[&wait[..], &["--json"]].concat());
    assert_eq!((ended["state"].as_str(), ended["done"].as_u64()), (Some("done"), Some(6)));
    mill.run(&watch).ok().says("ready done");
    mill.run(&["flows", "retry", &id]).code(5).says("flow_not_now");
    mill.run(&["flows", "cancel", &id]).code(5).says("flow_not_now");
    mill.run(&["flows", "rerun", &id, "nobody"]).code(3).says("step_unknown");
    mill.run(&["flows", "rerun", &id, "ready"]).ok().says("1 job runs again");
    let ended = mill.json(&[&wait[..], &["--json"]].concat());
    assert_eq!((ended["state"].as_str(), ended["done"].as_u64()), (Some("done"), Some(6)));
    let progress = &ended["progress"];
    let counts =
        ["jobs", "done", "failed", "skipped", "remaining"].map(|word| progress[word].as_u64());
    assert_eq!(counts, [7, 6, 0, 1, 0].map(Some), "of what is there now: {progress}");
    mill.run(&["flows", "show", &id])
        .ok()
        .says("ready (run 1)")
        .says("6 of 7 jobs done, 1 skipped");
    stop(worker);
}

#[test]
fn a_flow_lives_on_sqlite() {
    life(&Mill::sqlite());
}

#[test]
fn a_flow_lives_on_postgres() {
    life(&Mill::postgres());
}

fn end(mill: &Mill) {
    let id = start(mill, SIGN_UP);
    mill.run(&["flows", "wait", &id, "--timeout", "1ms"]).code(7).says("flow_wait_timeout");
    mill.run(&["flows", "cancel", &id, "--reason", "changed our mind"]).ok().says("called off");
    mill.run(&["flows", "show", &id]).ok().says("called off: changed our mind");
    let first = mill.json(&["flows", "show", &id, "--json"])["steps"][0]["first"].clone();
    let job = mill.run(&["jobs", "show", first.as_str().unwrap()]).ok();
    job.says(&format!("{id}, step account")).says("9007199254740993");
}

#[test]
fn a_flow_is_called_off_on_sqlite() {
    end(&Mill::sqlite());
}

#[test]
fn a_flow_is_called_off_on_postgres() {
    end(&Mill::postgres());
}

#[test]
fn a_saga_that_turns_back_is_drawn_with_its_undos() {
    let mill = Mill::sqlite();
    let text = r#"{"name": "trip", "saga": true, "steps": [
        {"name": "flight", "kind": "book", "undo": {"kind": "undo", "payload": 7}},
        {"name": "pay", "kind": "pay", "after": ["flight"], "nothing_to_undo": true, "pivot": true}
    ]}"#;
    let id = start(&mill, text);
    mill.run(&["flows", "show", &id]).ok().says("no way back once it is done");
    let exec = "[ $TIDEMILL_KIND != pay ] || exit 64";
    let worker = mill.work(&["--exec", exec, "--kind", "book,undo,pay"]);
    mill.run(&["flows", "wait", &id, "--timeout", "30s"]).code(1).says("is undone");
    mill.run(&["flows", "show", &id]).ok().says("↺ undone").says("✔ undo flight").says("✘ pay");
    let shown = mill.run(&["flows", "show", &id, "--json"]).ok().stdout;
    assert_eq!(shown.matches(r#""steps":"#).count(), 1, "each word once: {shown}");
    stop(worker);
}

fn stuck(mill: &Mill) {
    let text = r#"{"name": "trip", "saga": true, "steps": [
        {"name": "hotel", "kind": "book", "undo": {"kind": "unbook_hotel"}},
        {"name": "flight", "kind": "book", "after": ["hotel"],
         "undo": {"kind": "unbook_flight", "payload": {"seat": 7}}},
        {"name": "hold", "kind": "hold", "after": ["flight"], "nothing_to_undo": true},
        {"name": "pay", "kind": "pay", "after": ["hold"], "nothing_to_undo": true}
    ]}"#;
    let id = start(mill, text);
    mill.run(&["flows", "undo", &id]).ok().says("1. hotel  by unbook_hotel null  (it runs");
    let booking = mill.work(&["--exec", "true", "--kind", "book"]);
    eventually_waits(mill, "hold");
    stop(booking);
    let undo = mill.run(&["flows", "undo", &id]).ok();
    let lacking = "  (no worker knows this kind)";
    let list = |lacking: &str| {
        format!(
            "1. flight  by unbook_flight {{\"seat\": 7}}{lacking}\n2. hotel  by unbook_hotel null{lacking}\n"
        )
    };
    assert_eq!(undo.stdout, list(lacking));
    let rows = mill.rows(&["flows", "undo", &id, "--json"]);
    assert_eq!((rows.len(), rows[0]["kind_known"].as_bool()), (2, Some(false)));
    assert_eq!(rows[0]["undo"]["payload"]["seat"].as_u64(), Some(7));
    let exec = "case $TIDEMILL_KIND in pay|unbook_flight) exit 64;; esac";
    let worker = mill.work(&["--exec", exec, "--kind", "hold,pay,unbook_hotel,unbook_flight"]);
    mill.run(&["flows", "wait", &id, "--timeout", "30s"]).code(1).says("stuck");
    let stuck = mill.rows(&["flows", "list", "--state", "stuck", "--json"]);
    assert_eq!(stuck.len(), 1);
    let since = stuck[0]["since"].as_str().expect("since when it is");
    assert_eq!(mill.json(&["flows", "show", &id, "--json"])["since"], since);
    mill.run(&["flows", "show", &id]).ok().says("! stuck since 20");
    let left = mill.run(&["flows", "undo", &id]).ok().stdout;
    assert_eq!(left, list(""), "both are still to be undone");
    let dead = mill.rows(&["dead", "list", "--kind", "unbook_flight", "--json"]);
    let letter = dead[0]["id"].as_str().unwrap();
    mill.run(&["dead", "delete", letter]).code(5).says("letter_of_flow").says(&id);
    let retry = ["flows", "retry", &*id, "--step", "undo flight"];
    mill.run(&retry).code(2).says("why_missing");
    mill.run(&["dead", "replay", letter]).code(2).says("why_missing");
    mill.run(&["jobs", "retry", letter]).code(2).says("why_missing");
    mill.run(&[&retry[..], &["--why", "once more"]].concat()).ok().says("1 job is on its way");
    mill.run(&["flows", "wait", &id, "--timeout", "30s"]).code(1).says("stuck");
    mill.run(&["dead", "show", letter]).ok().says("replayed: once more");
    let other = ["dead", "replay", letter, "--payload", r#"{"seat":9}"#, "--why", "the other seat"];
    mill.run(&other).ok();
    mill.run(&["flows", "wait", &id, "--timeout", "30s"]).code(1).says("stuck");
    mill.run(&["flows", "undo", &id]).ok().says(r#"1. flight  by unbook_flight {"seat":9}"#);
    let rows = mill.rows(&["flows", "undo", &id, "--json"]);
    assert_eq!(rows[0]["undo"]["payload"]["seat"].as_u64(), Some(9), "as it runs");
    let resolve =
        ["flows", "resolve", &id, "--step", "undo flight", "--why", "by phone", "--by", "ada"];
    mill.run(&resolve).ok().says("1 job counts as done");
    mill.run(&["flows", "wait", &id, "--timeout", "30s"]).code(1).says("is undone");
    mill.run(&["flows", "undo", &id]).ok().says("nothing would be undone");
    mill.run(&resolve).code(5).says("flow_not_now");
    mill.run(&["flows", "resolve", &id, "--step", "x", "--why", "y", "--output", "{"]).code(2);
    stop(worker);
}

/// Until the job of this kind waits for a worker.
fn eventually_waits(mill: &Mill, kind: &str) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while mill.rows(&["jobs", "list", "--kind", kind, "--state", "ready", "--json"]).is_empty() {
        assert!(std::time::Instant::now() < deadline, "{kind} never waits");
    }
}

#[test]
fn a_saga_is_stuck_until_somebody_acts_on_sqlite() {
    stuck(&Mill::sqlite());
}

#[test]
fn a_saga_is_stuck_until_somebody_acts_on_postgres() {
    stuck(&Mill::postgres());
}

#[test]
fn checking_a_flow_needs_no_store() {
    let mill = Mill::sqlite();
    let file = mill.file("flow.json");
    std::fs::write(&file, SIGN_UP).unwrap();
    mill.run(&["flows", "start", &file, "--check"]).ok().says("well formed");
    for (text, code) in [
        ("{", "flow_invalid"),
        (r#"{"name": "f", "steps": []}"#, "flow_invalid"),
        (r#"{"name": "f", "steps": [{"name": "a", "kind": "k", "aftre": []}]}"#, "flow_invalid"),
        (
            r#"{"name": "f", "steps": [{"name": "a", "kind": "k", "after": ["b"]},
                {"name": "b", "kind": "k", "after": ["a"]}]}"#,
            "flow_cycle",
        ),
    ] {
        for args in [&["flows", "start", "-", "--check"][..], &["flows", "start", "-"]] {
            mill.run_with(args, text).code(2).says(code);
        }
    }
    mill.run(&["flows", "start", "nowhere.json"]).code(2).says("nowhere.json");
    mill.run(&["flows"]).ok().says("no flow matches");
}

#[test]
fn a_flow_that_is_there_is_said_to_be() {
    let mill = Mill::sqlite();
    let flow = |kind: &str| {
        let id = "0199f000-0000-7000-8000-000000000001";
        format!(r#"{{"id": "{id}", "name": "f", "steps": [{{"name": "a", "kind": "{kind}"}}]}}"#)
    };
    let start = ["flows", "start", "-"];
    let new = mill.run_with(&start, &flow("k")).ok().says("started");
    let there = mill.run_with(&start, &flow("k")).ok().says("existing");
    assert_eq!(new.stdout, there.stdout, "its id");
    mill.run_with(&["flows", "start", "-", "--json"], &flow("k"))
        .ok()
        .says(r#""answer":"existing""#);
    mill.run_with(&start, &flow("other")).code(2).says("id_taken");
}

#[test]
fn an_unknown_flow_is_not_found() {
    let mill = Mill::sqlite();
    mill.run(&["migrate"]).ok();
    let id = "019a3c1e-7c11-7bbb-8000-5fd1e2a0c0de";
    for verb in ["show", "wait", "cancel", "retry"] {
        mill.run(&["flows", verb, id]).code(3).says("flow_unknown");
    }
    mill.run(&["flows", "show", "nonsense"]).code(2);
}

/// A flow of lines: its first line, and one job on each of the others.
fn campaign(id: &str, jobs: std::ops::Range<u32>) -> String {
    let steps = r#"[{"name":"mail","jobs":[]},{"name":"report","kind":"report","after":["mail"]}]"#;
    let head = format!(r#"{{"id":"{id}","name":"campaign","steps":{steps}}}"#);
    let job = |n| format!(r#"{{"step":"mail","kind":"mail","payload":{n}}}"#);
    let lines: Vec<_> = std::iter::once(head).chain(jobs.map(job)).collect();
    lines.join("\n") + "\n"
}

/// One that is killed between two parts has started nothing; the same lines again add what is missing, once.
fn killed_between_parts(mill: &Mill) {
    let id = "01980000-0000-7000-8000-0000000000aa";
    let start = ["flows", "start", "--lines", "-"];
    let mut command = mill.command(&start);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut sender = command.spawn().unwrap();
    // More than a part, and the end does not come.
    let mut pipe = sender.stdin.take().unwrap();
    pipe.write_all(campaign(id, 0..1500).as_bytes()).unwrap();
    let building = ["flows", "list", "--state", "building", "--json"];
    let has_part = || mill.rows(&building).first().filter(|row| row["jobs"] == 1001).map(drop);
    until(PATIENCE, has_part).expect("a part was added");
    sender.kill().unwrap();
    sender.wait().unwrap();
    drop(pipe);
    // A worker takes a job that came later, and none of these.
    let worker = mill.work(&["--exec", "cat", "--kind", "mail"]);
    let later = mill.enqueue(&["mail", "9999"]);
    mill.run(&["jobs", "wait", &later, "--timeout", "30s"]).ok();
    stop(worker);
    let rows = mill.rows(&building);
    assert_eq!((&rows[0]["jobs"], &rows[0]["done"]), (&1001.into(), &0.into()), "{rows:?}");

    let whole = campaign(id, 0..2500);
    for _ in 0..2 {
        let told = mill.run_with(&start, &whole).ok();
        assert_eq!(told.stdout.trim(), id);
    }
    let shown = mill.json(&["flows", "show", id, "--json"]);
    assert_eq!((&shown["state"], &shown["jobs"]), (&"running".into(), &2501.into()));
    let bad = format!("{}no\n", campaign("01980000-0000-7000-8000-0000000000ab", 0..2));
    let ended = mill.run_with(&start, &bad).code(2);
    ended.says("line 4").says("mend this line").says("0000000000ab");
}

#[test]
fn a_sender_that_is_killed_between_parts_goes_on_on_sqlite() {
    killed_between_parts(&Mill::sqlite());
}

#[test]
fn a_sender_that_is_killed_between_parts_goes_on_on_postgres() {
    killed_between_parts(&Mill::postgres());
}
