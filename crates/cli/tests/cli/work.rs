//! Any program as a handler.

use std::fs;
use std::path::Path;
use std::process::Command;

use tidemill_testkit::eventually::until;

use crate::mill::{Mill, PATIENCE, stop};

#[test]
fn exit_codes_become_states_and_classes() {
    let mill = Mill::sqlite();
    let id_of = |code: &str| mill.enqueue(&["k", code]);
    let cases = [
        ("0", "done", None),
        ("65", "dead", Some("permanent")),
        ("100", "dead", Some("permanent")),
        ("75", "scheduled", Some("transient")),
        ("1", "scheduled", Some("transient")),
        ("76", "scheduled", Some("rate_limited")),
        ("101", "scheduled", Some("ambiguous")),
        ("102", "dead", Some("in_doubt")),
        ("79", "scheduled", None),
        ("80", "cancelled", None),
    ];
    let ids: Vec<_> = cases.iter().map(|(code, ..)| id_of(code)).collect();
    let exec = "read code; echo retry-after 600 >&2; echo because $code >&2; exit $code";
    let worker = mill.work(&["--exec", exec, "--kind", "k", "--concurrency", "4"]);
    for _ in cases {
        worker.wait_for_line("done", PATIENCE).unwrap();
    }
    stop(worker);
    for ((code, state, class), id) in cases.iter().zip(ids) {
        let shown = mill.json(&["jobs", "show", &id, "--json"]);
        assert_eq!(shown["job"]["state"], *state, "{code}: {shown}");
        let last = shown["attempts"].as_array().unwrap().last().cloned().unwrap_or_default();
        if let Some(class) = class {
            assert_eq!(last["class"], *class, "{code}: {shown}");
        }
    }
}

#[test]
fn help_says_what_each_exit_code_means() {
    let help = Mill::sqlite().run(&["work", "--help"]).ok().stdout;
    for code in ["64", "65", "75", "76", "78", "79", "80", "100", "101", "102", "129-159"] {
        assert!(help.split([' ', '\n', '(']).any(|word| word == code), "{code}: {help}");
    }
}

/// What a command that did its work prints is no reason to call it undone.
#[test]
fn a_job_is_done_whatever_text_it_prints() {
    let mill = Mill::sqlite();
    let exec = r"for n in $(seq 130); do printf '\033[32mok\033[0m %s\n' $n; done";
    let colours = mill.enqueue(&["colours"]);
    let worker = mill.work(&["--exec", exec, "--kind", "colours"]);
    mill.run(&["jobs", "wait", &colours, "--timeout", "30s"]).ok();
    stop(worker);
    let output = mill.state(&colours)["output"].clone();
    let lines: Vec<_> = output.as_str().unwrap().lines().collect();
    assert_eq!((lines.len(), lines[0]), (130, "\x1b[32mok\x1b[0m 1"));

    let deep = mill.enqueue(&["deep"]);
    let exec = "head -c 65 /dev/zero | tr '\\0' '['; head -c 65 /dev/zero | tr '\\0' ']'";
    let worker = mill.work(&["--exec", exec, "--kind", "deep"]);
    mill.run(&["jobs", "wait", &deep, "--timeout", "30s"]).ok();
    stop(worker);
    let text = format!("{}{}", "[".repeat(65), "]".repeat(65));
    assert_eq!(mill.state(&deep)["output"], text);
}

#[test]
fn an_empty_command_or_kind_is_refused() {
    let mill = Mill::sqlite();
    mill.run(&["work", "--exec", " ", "--kind", "k"]).code(2).says("--exec is empty");
    mill.run(&["work", "--exec", "true", "--kind", "k,"]).code(2).says("name_empty");
    mill.run(&["enqueue", "k", "--run-timeout", "0s"]).code(2).says("at least 1 ms");
}

#[test]
fn a_command_is_alone_and_knows_its_job() {
    let mill = Mill::sqlite();
    let id = mill.enqueue(&["k", "--tenant", "acme"]);
    let exec = "echo $TIDEMILL_JOB_ID $TIDEMILL_KIND $TIDEMILL_ATTEMPT $TIDEMILL_TENANT \
                $TIDEMILL_QUEUE [$SECRET] $PASSED $(ls | wc -l) && test \"$HOME\" = \"$(pwd)\"";
    let mut command =
        mill.command(&["work", "--json", "--exec", exec, "--kind", "k", "--env", "PASSED"]);
    command.env("SECRET", "s").env("PASSED", "p");
    let worker = tidemill_testkit::Process::spawn(&mut command).unwrap();
    let ended = mill.run(&["jobs", "wait", &id, "--timeout", "30s"]).ok();
    assert_eq!(ended.stdout.trim(), format!("\"{id} k 1 acme default [] p 0\""));
    stop(worker);
}

fn reads_what_was_returned_before(mill: &Mill) {
    let large = "x".repeat(40_000);
    let text = format!(
        r#"{{"name": "sum", "steps": [
            {{"name": "one", "kind": "say", "payload": {{"cents": 9007199254740993}}}},
            {{"name": "large", "kind": "say", "payload": "{large}"}},
            {{"name": "all", "kind": "say", "payloads": [1, 2, 3]}},
            {{"name": "bad", "kind": "fail"}},
            {{"name": "first", "kind": "first", "after": ["one"]}},
            {{"name": "sum", "kind": "sum", "after": ["one", "large", "all", {{"step": "bad", "on": "either"}}],
              "join": {{"need": "finished"}}}}
        ]}}"#
    );
    let file = mill.file("flow.json");
    fs::write(&file, text).unwrap();
    let id = mill.run(&["flows", "start", &file]).ok().stdout.trim().to_owned();
    let exec = "case $TIDEMILL_KIND in \
                say) test -z \"$TIDEMILL_INPUTS\" && cat ;; \
                fail) exit 65 ;; \
                *) test $(ls | wc -l) = 0 && cat $TIDEMILL_INPUTS ;; \
                esac";
    let worker = mill.work(&["--exec", exec, "--kind", "say,fail,first,sum"]);
    mill.run(&["flows", "wait", &id, "--timeout", "30s"]).ok();
    stop(worker);
    let steps = mill.json(&["flows", "show", &id, "--json"])["steps"].clone();
    let output = |at: usize| {
        let job = steps[at]["first"].as_str().unwrap().to_owned();
        mill.json(&["jobs", "show", &job, "--json"])["job"]["output"].clone()
    };
    let one = serde_json::json!({
        "state": "done", "jobs": 1, "done": 1, "failed": 0, "output": {"cents": 9_007_199_254_740_993_u64}
    });
    assert_eq!(output(4), serde_json::json!({ "one": one }));
    let read = output(5);
    assert_eq!((&read["one"], read["large"]["output"].as_str()), (&one, Some(&*large)));
    let all = read["all"]["outputs"].as_array().unwrap();
    let mut numbers: Vec<_> = all.iter().map(|one| one["output"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!((numbers, all[0]["id"].is_string()), (vec![1, 2, 3], true));
    assert_eq!((&read["bad"]["state"], &read["bad"]["output"]), (&"failed".into(), &().into()));
}

#[test]
fn a_command_reads_what_was_returned_before_on_sqlite() {
    reads_what_was_returned_before(&Mill::sqlite());
}

#[test]
fn a_command_reads_what_was_returned_before_on_postgres() {
    reads_what_was_returned_before(&Mill::postgres());
}

#[test]
fn the_last_words_of_a_command_are_its_error() {
    let mill = Mill::sqlite();
    let id = mill.enqueue(&["k"]);
    let exec = "echo progress 40 reading rows >&2; echo first >&2; echo last >&2; exit 65";
    let worker = mill.work(&["--exec", exec, "--kind", "k"]);
    worker.wait_for_line("reading rows", PATIENCE).unwrap();
    mill.run(&["jobs", "wait", &id, "--timeout", "30s"]).code(1);
    stop(worker);
    assert_eq!(mill.state(&id)["error"], "last\nfirst");
}

#[test]
fn too_much_output_is_dead_at_once_and_in_doubt() {
    let mill = Mill::sqlite();
    let id = mill.enqueue(&["k"]);
    let worker = mill.work(&["--exec", "yes", "--kind", "k", "--max-output-bytes", "1000"]);
    mill.run(&["jobs", "wait", &id, "--timeout", "30s"]).code(1).says("more than 1000 bytes");
    stop(worker);
    let shown = mill.json(&["jobs", "show", &id, "--json"]);
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &attempts[0]["class"]), (1, &"in_doubt".into()), "{shown}");
}

/// Whether a process runs; one that nobody has collected does not.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Runs a command that leaves a grandchild behind, and answers the grandchild's id.
fn grandchild(mill: &Mill) -> String {
    let path = mill.file("pid");
    let text =
        until(PATIENCE, || fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')));
    text.expect("the grandchild writes its id").trim().to_owned()
}

#[test]
fn a_timeout_kills_grandchildren_that_ignore_it() {
    let mill = Mill::sqlite();
    let pid = mill.file("pid");
    let exec =
        format!("trap '' TERM; sleep 1000 & echo $! > {pid}.new; mv {pid}.new {pid}; wait; wait");
    let id = mill.enqueue(&["k", "--attempts", "1", "--run-timeout", "300ms"]);
    let worker = mill.work(&["--exec", &exec, "--kind", "k", "--grace", "100ms"]);
    mill.run(&["jobs", "wait", &id, "--timeout", "30s"]).code(1).says("longer than its limit");
    worker.wait_for_line("told to end while it ran", PATIENCE).unwrap();
    let pid = grandchild(&mill);
    assert!(until(PATIENCE, || (!runs(&pid)).then_some(())).is_some(), "{pid} still runs");
    stop(worker);
}

#[test]
fn what_a_finished_command_left_behind_is_killed() {
    let mill = Mill::sqlite();
    let pid = mill.file("pid");
    let exec = format!("sleep 1000 & echo $! > {pid}; echo 1");
    let id = mill.enqueue(&["k"]);
    let worker = mill.work(&["--exec", &exec, "--kind", "k"]);
    mill.run(&["jobs", "wait", &id, "--timeout", "30s"]).ok().says("1");
    let pid = grandchild(&mill);
    assert!(until(PATIENCE, || (!runs(&pid)).then_some(())).is_some(), "{pid} still runs");
    stop(worker);
}

#[test]
fn a_stop_gives_back_what_does_not_end_in_time() {
    let mill = Mill::sqlite();
    let pid = mill.file("pid");
    let exec = format!("echo $$ > {pid}; echo progress 1 started >&2; sleep 1000");
    let id = mill.enqueue(&["k"]);
    let worker = mill.work(&["--exec", &exec, "--kind", "k", "--drain", "0s"]);
    worker.wait_for_line("started", PATIENCE).unwrap();
    let mut worker = worker;
    worker.term().unwrap();
    let told = worker.wait_for_line("\"event\":", PATIENCE).unwrap();
    assert!(told.contains("\"given_back\"") && told.contains("no attempt is spent"), "{told}");
    assert!(worker.wait(PATIENCE).unwrap().success());
    assert!(!runs(&grandchild(&mill)));
    let view = mill.state(&id);
    assert_eq!((view["state"].as_str(), &view["attempt"]), (Some("ready"), &0.into()));
    assert!(Path::new(&pid).exists());
}

/// Three jobs of `pay` and three of `default` that do not end: two slots are pay's own, one is shared.
fn keeps_slots_for_a_queue(mill: &Mill, place: &dyn Fn(&[&str]) -> Command) {
    let ids: Vec<_> = ["pay", "default"]
        .into_iter()
        .flat_map(|queue| (0..3).map(move |_| queue))
        .map(|queue| mill.enqueue(&["k", "--queue", queue]))
        .collect();
    let running = |queue: &str| {
        let rows = mill.rows(&["jobs", "list", "--state", "running", "--queue", queue, "--json"]);
        rows.len()
    };
    let work = |dedicated: &str| {
        let exec = ["work", "--json", "--exec", "sleep 1000", "--kind", "k", "--drain", "0s"];
        let slots = ["--concurrency", "1", "--dedicated", dedicated];
        tidemill_testkit::Process::spawn(&mut place(&[&exec[..], &slots].concat())).unwrap()
    };
    let worker = work("pay=2");
    let is_full = || (running("pay") == 2 && running("default") == 1).then_some(());
    assert!(until(PATIENCE, is_full).is_some(), "two of pay, one of the others");
    mill.run(&["workers"]).ok().says("default=1 pay=2");
    // A server has workers of its own.
    let cards = mill.rows(&["workers", "--json"]);
    let card = cards.iter().find(|card| card["kinds"] == serde_json::json!(["k"])).unwrap();
    let slots_of = serde_json::json!({
        "default": { "own": 0, "shared": 1 },
        "pay": { "own": 2, "shared": 0 },
    });
    assert_eq!(card["slots_of"], slots_of, "{card}");
    assert_eq!(card["slots"], 3);
    stop(worker);

    // With overflow and nobody else, all three slots are pay's.
    for id in &ids[3..] {
        mill.run(&["jobs", "cancel", id]).ok();
    }
    let worker = work("pay=2+");
    let is_full = || (running("pay") == 3).then_some(());
    assert!(until(PATIENCE, is_full).is_some(), "it takes the shared one too");
    mill.run(&["workers"]).ok().says("pay=2+1");
    stop(worker);
}

#[test]
fn a_queue_has_slots_of_its_own_on_sqlite() {
    let mill = Mill::sqlite();
    keeps_slots_for_a_queue(&mill, &|args| mill.command(args));
}

#[test]
fn a_queue_has_slots_of_its_own_on_postgres() {
    let mill = Mill::postgres();
    keeps_slots_for_a_queue(&mill, &|args| mill.command(args));
}

#[test]
fn a_queue_has_slots_of_its_own_on_a_server() {
    for mill in [Mill::sqlite(), Mill::postgres()] {
        let (server, url) = mill.serve(&[]);
        let place = |args: &[&str]| {
            let mut command = mill.command(args);
            command.env_remove("TIDEMILL_STORE").env("TIDEMILL_SERVER", &url);
            command
        };
        keeps_slots_for_a_queue(&mill, &place);
        stop(server);
    }
}

#[test]
fn slots_that_contradict_each_other_are_refused() {
    let mill = Mill::sqlite();
    let work =
        |rest: &[&str]| mill.run(&[&["work", "--exec", "cat", "--kind", "k"], rest].concat());
    work(&["--dedicated", "pay"]).code(2).says("such as pay=5");
    work(&["--dedicated", "pay=0"]).code(2).says("at least 1");
    work(&["--dedicated", "pay=1,pay=2"]).code(2).says("pay has dedicated slots twice");
    work(&["--queue", "*", "--dedicated", "pay=5"]).code(2).says("--dedicated pay=5+");
    work(&["--dedicated", "default=5"]).code(2).says("shares with default");
    work(&["--queue", ""]).code(2);
    fs::write(mill.file("tidemill.toml"), "[work]\ndedicated = [\"pay=5\", \"pay=6\"]\n").unwrap();
    work(&[]).code(2).says("pay has dedicated slots twice");
    fs::write(mill.file("tidemill.toml"), "[work]\ndedicated = \"pay=none\"\n").unwrap();
    work(&[]).code(2).says("config_invalid").says("work.dedicated");
    assert!(!Path::new(&mill.file("test.db")).exists(), "nothing was opened");
}
