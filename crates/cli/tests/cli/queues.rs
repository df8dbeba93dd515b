//! Queues from the shell: bounded, looked at, explained, and refused when their rules make no sense.

use crate::mill::Mill;

fn bounds(mill: &Mill) {
    let set = ["queues", "set", "mail", "--depth-max", "2", "--overflow", "reject"];
    mill.run(&set).ok().says("full at 2, then rejects, watermarks 1 and 0");
    for _ in 0..2 {
        mill.run(&["enqueue", "send", "{}", "--queue", "mail", "--tenant", "acme"]).ok();
    }
    mill.run(&["enqueue", "send", "{}", "--queue", "mail"])
        .code(6)
        .says("queue_full")
        .says("try again in");
    // Nobody has looked at its depth before.
    mill.run(&["alerts"]).code(1).says("above_watermark").says("high watermark of 1 job and has 2");
    mill.run(&["queues"]).ok().says("2 of 2");
    let listed = mill.rows(&["queues", "list", "--json"]);
    assert_eq!((&listed[0]["depth"], &listed[0]["rules"]["depth_max"]), (&2.into(), &2.into()));
    mill.run(&["queues", "why", "mail"])
        .ok()
        .says("mail: depth 2 of 2")
        .says("no live worker takes from it")
        .says("2 jobs of acme");
    mill.run(&["queues", "wait", "mail", "--timeout", "10ms"])
        .code(7)
        .says("2 jobs wait in it")
        .says("tidemill queues why mail");
    let why = mill.json(&["queues", "why", "mail", "--json"]);
    assert_eq!((&why["depth"], &why["holders"][0]["holder"]), (&2.into(), &"no_worker".into()));
    mill.run(&["queues", "set", "mail", "--overflow", "divert:spill"])
        .ok()
        .says("diverts to spill");
    mill.run(&["enqueue", "send", "{}", "--queue", "mail"]).ok().says("diverted to spill");
    let told = mill.json(&["enqueue", "send", "{}", "--queue", "mail", "--json"]);
    assert_eq!((&told["answer"], &told["queue"]), (&"diverted".into(), &"spill".into()));
    assert_eq!(mill.state(told["id"].as_str().unwrap())["queue"], "spill");
    let lines = "{\"kind\":\"send\",\"queue\":\"mail\"}\n{\"kind\":\"send\"}\n";
    mill.run_with(&["enqueue", "--lines"], lines).ok().says("1 diverted, 1 enqueued");
    mill.run(&["queues"]).ok().says("spill");
    mill.run(&["queues", "set", "mail", "--high", "2"]).ok().says("watermarks 2 and 1");
    mill.run(&["queues", "set", "mail", "--depth-max", "none"])
        .ok()
        .says("mail: watermarks 2 and 1\n")
        .says("with the bound went the policy of a full queue (diverts to spill)");
    let again = mill.run(&["queues", "set", "mail", "--depth-max", "none", "--high", "none"]).ok();
    assert_eq!((again.stdout.trim(), again.stderr.as_str()), ("mail: default", ""));
    mill.run(&["queues", "wait", "mail"]).ok().says("producers may go on");
    mill.run(&["queues", "pause", "sp*"]).ok();
    mill.run(&["queues"]).ok().says("paused by sp*");
    mill.run(&["queues", "why", "spill"]).ok().says("paused by the rules of sp*");
    mill.run(&["queues", "why", "sp*"]).code(2).says("by its name");
    mill.run(&["queues", "unset", "sp*"]).ok().says("follows the defaults again");
    mill.run(&["queues", "unset", "sp*"]).ok().says("there are no rules of sp*");
    mill.run(&["enqueue", "send", "{}", "--queue", "mail"]).ok();
}

#[test]
fn a_queue_is_bounded_on_sqlite() {
    bounds(&Mill::sqlite());
}

#[test]
fn a_queue_is_bounded_on_postgres() {
    bounds(&Mill::postgres());
}

#[test]
fn what_never_fits_is_refused_otherwise_than_what_may_fit_later() {
    let mill = Mill::sqlite();
    mill.run(&["--help"]).ok().says("6 store or server unavailable, or queue full");
    mill.run(&["queues", "set", "mail", "--depth-max", "1"]).ok();
    let line = "{\"kind\":\"send\",\"queue\":\"mail\"}\n";
    mill.run_with(&["enqueue", "--lines"], &line.repeat(2)).code(2).says("queue_full");
    mill.run_with(&["enqueue", "--lines"], line).ok();
    mill.run_with(&["enqueue", "--lines"], line).code(6).says("queue_full");
}

#[test]
fn lines_beyond_a_bound_say_which_got_in() {
    let mill = Mill::sqlite();
    mill.run(&["queues", "set", "mail", "--depth-max", "1500"]).ok();
    let line = "{\"kind\":\"send\",\"queue\":\"mail\"}\n";
    mill.run_with(&["enqueue", "--lines"], &line.repeat(1700))
        .code(6)
        .says("queue_full")
        .says("1,000 jobs were enqueued before; the lines 1001 to 1700 were refused together");
    assert_eq!(mill.rows(&["queues", "--json"])[0]["depth"], 1000);
}

#[test]
fn a_queue_that_a_pattern_pauses_is_told_so_when_it_is_resumed() {
    let mill = Mill::sqlite();
    mill.run(&["queues", "pause", "mail:*"]).ok();
    mill.run(&["queues", "pause", "mail:eu"]).ok();
    let still = "while the rules of mail:* pause it; `tidemill queues resume 'mail:*'` lets them";
    mill.run(&["queues", "resume", "mail:eu"]).ok().says(still);
    mill.run(&["queues", "resume", "mail:eu:*"]).ok().says(still);
    mill.run(&["queues", "resume", "mail:*"]).ok().says("the jobs of mail:* start again");
    mill.run(&["queues", "resume", "mail:eu"]).ok().says("the jobs of mail:eu start again");
}

#[test]
fn bad_rules_say_what_would_be_right() {
    let mill = Mill::sqlite();
    let set = |rest: &[&str]| mill.run(&[&["queues", "set", "mail"], rest].concat());
    set(&["--depth-max", "0"]).code(2).says("at least 1");
    set(&["--concurrency", "99999999999"]).code(2).says("that is too many");
    set(&["--overflow", "drop_oldest"]).code(2).says("set depth_max too");
    set(&["--depth-max", "none", "--overflow", "drop_oldest"]).code(2).says("set depth_max too");
    set(&["--depth-max", "9", "--overflow", "divert:mail"]).code(2).says("to itself");
    set(&["--depth-max", "9", "--overflow", "divert:m*"]).code(2).says("by its name");
    set(&["--depth-max", "9", "--high", "5", "--low", "7"]).code(2).says("leave a gap");
    set(&["--depth-max", "9", "--overflow", "wait:0s"]).code(2).says("use reject");
    set(&["--overflow", "explode"]).code(2).says("wait:DURATION");
}
