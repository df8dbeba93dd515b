//! Fields of payloads that are not to be seen, in all that commands show.

use super::mill::{Mill, PATIENCE, stop};

const SECRET: &str = "tulips-and-roses";
const HIDE: [&str; 2] = ["--hide", "password"];

fn hides(mill: &Mill) {
    let payload = format!(r#"{{"user":"ada","password":"{SECRET}"}}"#);
    let id = mill.enqueue(&["login", &payload, "--attempts", "1"]);
    let exec = "p=$(cat); echo progress 50 \"$p\" >&2; echo \"$p\" >&2; exit 100";
    let worker = mill.work(&[&HIDE[..], &["--kind", "login", "--exec", exec]].concat());
    mill.run(&["jobs", "wait", &id]).code(1);
    let line = worker.wait_for_line("not_done", PATIENCE).unwrap();
    assert!(line.contains("[hidden]") && !line.contains(SECRET), "{line}");
    stop(worker);
    let whole = mill.run(&["jobs", "show", &id, "--json"]).ok().stdout;
    assert!(whole.contains(r#""step":50"#), "{whole}");
    assert!(whole.contains(SECRET), "the payload is kept: {whole}");
    assert_eq!(whole.matches(SECRET).count(), 1, "and nothing else has it: {whole}");
    for show in [
        &["jobs", "show", &id][..],
        &["jobs", "show", &id, "--json"],
        &["jobs", "list", "--json"],
        &["jobs", "list"],
        &["dead", "list", "--json"],
        &["dead", "show", &id],
    ] {
        let shown = mill.run(&[&HIDE[..], show].concat()).ok();
        assert!(!shown.stdout.contains(SECRET), "{show:?}: {shown:?}");
    }
    mill.run(&[&HIDE[..], &["jobs", "show", &id]].concat()).ok().says("[hidden]").says("ada");
    let file = mill.file("tidemill.toml");
    std::fs::write(&file, "hide = [\"password\"]\n").unwrap();
    mill.run(&["jobs", "show", &id]).ok().says("[hidden]");
    std::fs::remove_file(file).unwrap();
    mill.run(&["--hide", "a..b", "jobs", "list"]).code(2).says("redaction_invalid");
}

#[test]
fn what_is_hidden_is_shown_nowhere_on_sqlite() {
    hides(&Mill::sqlite());
}

#[test]
fn what_is_hidden_is_shown_nowhere_on_postgres() {
    hides(&Mill::postgres());
}
