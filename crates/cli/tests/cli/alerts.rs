//! Alerts from the shell: none, one, and as JSON.

use crate::mill::Mill;

fn alerts(mill: &Mill) {
    mill.run(&["migrate"]).ok();
    mill.run(&["alerts"]).ok().says("no alert holds");
    mill.enqueue(&["resize", "{}", "--queue", "images"]);
    mill.run(&["alerts"]).code(1).says("no_worker").says("images").says("resize");
    let json = mill.run(&["alerts", "--json"]).code(1).stdout;
    let alert: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!((&alert["alert"], &alert["kind"]), (&"no_worker".into(), &"resize".into()));
}

#[test]
fn alerts_are_shown_on_sqlite() {
    alerts(&Mill::sqlite());
}

#[test]
fn alerts_are_shown_on_postgres() {
    alerts(&Mill::postgres());
}
