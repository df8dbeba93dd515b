//! Many jobs from JSON lines.

use crate::mill::Mill;

fn lines(n: usize) -> String {
    let lines: Vec<_> = (0..n).map(|n| format!("{{\"kind\":\"k\",\"payload\":{n}}}\n")).collect();
    lines.concat()
}

fn in_bulk(mill: &Mill) {
    mill.run_with(&["enqueue", "--lines"], &lines(2500)).ok().says("2,500 enqueued");
    let counts = mill.rows(&["queues", "--json"]);
    assert_eq!(counts[0]["ready"]["normal"], 2500);
}

#[test]
fn lines_are_enqueued_in_bulk_on_sqlite() {
    in_bulk(&Mill::sqlite());
}

#[test]
fn lines_are_enqueued_in_bulk_on_postgres() {
    in_bulk(&Mill::postgres());
}

#[test]
fn a_bad_line_is_named_and_nothing_of_its_batch_is_written() {
    let mill = Mill::sqlite();
    for (bad, code) in [
        ("{\"kind\":\"k\",\"dealy\":\"5m\"}", "line_invalid"),
        ("{\"kind\":\"\"}", "name_empty"),
        ("{\"kind\":\"k\",\"payload\":\"\\u0000\"}", "payload_nul"),
        ("not json", "line_invalid"),
    ] {
        let text = format!("{}\n{bad}\n{}", lines(1200), lines(5));
        let ended = mill.run_with(&["enqueue", "-"], &text).code(2);
        ended.says(code).says("line 1202").says("1,000 jobs were enqueued before");
    }
    assert_eq!(mill.rows(&["queues", "--json"])[0]["ready"]["normal"], 4000);
}

#[test]
fn duplicates_in_lines_are_counted() {
    let mill = Mill::sqlite();
    let line = "{\"kind\":\"k\",\"unique_key\":\"u\"}\n".repeat(3);
    mill.run_with(&["enqueue", "--lines"], &line).code(5).says("1 enqueued, 2 rejected");
    let joining = "{\"kind\":\"k\",\"unique_key\":\"u\",\"on_duplicate\":\"join\"}\n";
    mill.run_with(&["enqueue", "--lines", "--json"], joining).ok().says(r#"{"joined":1}"#);
}
