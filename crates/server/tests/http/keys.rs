//! Keys: what each holds, and their change, a part at a time.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Reach, Role};
use tidemill_core::cursor;

use super::kit::Kit;

over_both_stores!(
    parts_add_up_and_each_goes_on_where_the_one_before_ended,
    a_rotation_that_was_stopped_is_begun_again_and_ends,
    without_a_key_nothing_is_rotated_and_the_missing_one_is_named,
    cursors_that_were_not_given_here_are_refused,
    keys_are_for_admins_and_never_told,
);

const OLD: &str = "old AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const NEW: &str = "new HxwdHhsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA";

fn two_rows() -> Reach {
    Reach { rows_max: 2, ..Reach::default() }
}

/// A server with both keys that goes two rows far at a time, on a store with five jobs under the old one, and others
/// that are not encrypted.
async fn begun(kit: Kit) -> (Kit, String) {
    for n in 0..4 {
        kit.enqueue(json!({ "kind": "echo", "payload": { "plain": n } })).await;
    }
    let kit = kit.keyed(&[OLD], Reach::default()).await;
    let mut last = String::new();
    for n in 0..5 {
        last = kit.enqueue(json!({ "kind": "echo", "payload": { "hidden": n } })).await;
    }
    (kit.keyed(&[NEW, OLD], two_rows()).await, last)
}

/// One part.
async fn part(kit: &Kit, is_rotation: bool, from: &Value) -> Value {
    let told = if is_rotation {
        kit.post("/v1/keys/rotate", json!({ "cursor": from })).await
    } else {
        let from = from.as_str().map(|from| format!("?cursor={from}")).unwrap_or_default();
        kit.get(&format!("/v1/keys{from}")).await
    };
    told.is(200).body
}

/// All parts, one after the other.
async fn parts(kit: &Kit, is_rotation: bool) -> Vec<Value> {
    let mut parts = vec![part(kit, is_rotation, &Value::Null).await];
    while let Some(next) = parts.last().and_then(|part| part.get("next")).cloned() {
        parts.push(part(kit, is_rotation, &next).await);
    }
    parts
}

/// The rows of a key, in parts of the counts.
fn rows(parts: &[Value], key: &str) -> u64 {
    let keys = parts.iter().flat_map(|part| part["keys"].as_array().unwrap());
    keys.filter(|count| count["key"] == key).map(|count| count["rows"].as_u64().unwrap()).sum()
}

fn sum(parts: &[Value], field: &str) -> u64 {
    parts.iter().map(|part| part[field].as_u64().unwrap()).sum()
}

async fn parts_add_up_and_each_goes_on_where_the_one_before_ended(kit: Kit) {
    let (kit, last) = begun(kit).await;
    let counted = parts(&kit, false).await;
    assert_eq!((rows(&counted, "old"), rows(&counted, "new")), (5, 0));
    assert!(counted.len() > 4, "nine rows, two at a time: {counted:?}");
    let first = counted[0]["keys"].as_array().unwrap();
    let told = |key: &str| first.iter().find(|count| count["key"] == key).unwrap();
    assert_eq!((&told("new")["first"], &told("new")["known"]), (&json!(true), &json!(true)));
    assert_eq!((&told("old")["first"], &told("old")["known"]), (&json!(false), &json!(true)));

    let rotated = parts(&kit, true).await;
    assert!(rotated.len() > 4 && rotated.iter().all(|part| part["seen"].as_u64() <= Some(2)));
    let sums = ["seen", "rotated", "changed", "unreadable"].map(|field| sum(&rotated, field));
    assert_eq!(sums, [5, 5, 0, 0]);
    let counted = parts(&kit, false).await;
    assert_eq!((rows(&counted, "old"), rows(&counted, "new")), (0, 5));

    let kit = kit.keyed(&[NEW], Reach::default()).await;
    let view = kit.get(&format!("/v1/jobs/{last}")).await.is(200).body;
    assert_eq!(view["payload"], json!({ "hidden": 4 }));
    // As far as a second reaches, which is all of it.
    let whole = kit.get("/v1/keys").await.is(200).body;
    let count = json!({ "key": "new", "rows": 5, "known": true, "first": true });
    assert_eq!(whole, json!({ "keys": [count] }));
    let whole = kit.post("/v1/keys/rotate", json!({})).await.is(200).body;
    assert_eq!(whole, json!({ "seen": 5, "rotated": 0, "changed": 0, "unreadable": 0 }));
    kit.close().await;
}

async fn a_rotation_that_was_stopped_is_begun_again_and_ends(kit: Kit) {
    let (kit, _) = begun(kit).await;
    let mut from = Value::Null;
    let mut rotated = 0;
    while rotated == 0 {
        let told = part(&kit, true, &from).await;
        (rotated, from) = (told["rotated"].as_u64().unwrap(), told["next"].clone());
    }
    let counted = parts(&kit, false).await;
    assert_eq!((rows(&counted, "old"), rows(&counted, "new")), (5 - rotated, rotated));
    let rest = parts(&kit, true).await;
    assert_eq!((sum(&rest, "seen"), sum(&rest, "rotated")), (5, 5 - rotated));
    // An old cursor is good for as long as anybody keeps it.
    let late = part(&kit, true, &from).await;
    assert_eq!(late["rotated"], 0);
    kit.close().await;
}

async fn without_a_key_nothing_is_rotated_and_the_missing_one_is_named(kit: Kit) {
    let (kit, _) = begun(kit).await;
    let bare = kit.twin().await;
    bare.post("/v1/keys/rotate", json!({})).await.refused(409, "encryption_off", "no key");
    let counted = bare.get("/v1/keys").await.is(200).body;
    let missing = json!({ "key": "old", "rows": 5, "known": false, "first": false });
    assert_eq!(counted, json!({ "keys": [missing] }));
    bare.close().await;
    let kit = kit.keyed(&[NEW], Reach::default()).await;
    let told = kit.post("/v1/keys/rotate", json!({})).await.is(200).body;
    assert_eq!((&told["unreadable"], &told["rotated"]), (&json!(5), &json!(0)));
    kit.close().await;
}

async fn cursors_that_were_not_given_here_are_refused(kit: Kit) {
    let (kit, _) = begun(kit).await;
    let [of_list, of_rotation] = [false, true].map(|is| part(&kit, is, &Value::Null));
    let (of_list, of_rotation) = (of_list.await, of_rotation.await);
    let [of_list, of_rotation] =
        [&of_list, &of_rotation].map(|part| part["next"].as_str().unwrap());
    let id = tidemill::JobId::new();
    let forged = [
        String::new(),
        "/".into(),
        "jobs".into(),
        "jobs/0/x".into(),
        "jobs/0/'; select 1".into(),
        format!("jobs/x/{id}"),
        format!("nowhere/0/{id}"),
        "objects/0/x".into(),
        "schedules/0/\0".into(),
        "run_acts/1/x".into(),
    ];
    let wrong = |list: &str| {
        let plain = ["", "x", "ffff", "%00"].map(str::to_owned);
        let others = ["jobs", "audit"].map(|other| cursor::write(other, &id.to_string()));
        let forged = forged.iter().map(|key| cursor::write(list, key));
        plain.into_iter().chain(others).chain(forged).collect::<Vec<_>>()
    };
    for wrong in wrong("keys").iter().map(String::as_str).chain([of_rotation]) {
        let told = kit.get(&format!("/v1/keys?cursor={wrong}")).await;
        let says = if wrong == "%00" { "U+0000" } else { "cursor" };
        told.refused(400, "request_invalid", says);
    }
    for wrong in wrong("rotation").iter().map(String::as_str).chain([of_list]) {
        let told = kit.post("/v1/keys/rotate", json!({ "cursor": wrong })).await;
        told.refused(400, "request_invalid", "cursor");
    }
    let told = kit.post("/v1/keys/rotate", json!({ "key": "new" })).await;
    told.refused(400, "request_invalid", "key");
    kit.close().await;
}

async fn keys_are_for_admins_and_never_told(kit: Kit) {
    let (kit, _) = begun(kit).await;
    let kit = kit.closed().await;
    let operator = kit.credential("ada", Grant::new(Role::Operator)).await;
    let root = kit.credential("root", Grant::new(Role::Admin)).await;
    let both = [(Method::GET, "/v1/keys"), (Method::POST, "/v1/keys/rotate")];
    for (method, path) in both.clone() {
        let told = kit.ask(&operator, method, path, json!({})).await;
        told.refused(403, "role_refused", "admin");
    }
    let mut told = String::new();
    for (method, path) in both {
        told += &kit.ask(&root, method, path, json!({})).await.is(200).body.to_string();
    }
    for line in [OLD, NEW] {
        let key = line.split(' ').next_back().unwrap();
        assert!(!told.contains(key), "a key is told: {told}");
    }
    let acts = kit.ask(&root, Method::GET, "/v1/audit?act=rotate_keys", json!({})).await.is(200);
    let acts = acts.body["acts"].as_array().unwrap().clone();
    let fields = ["who", "result", "detail"];
    let found: Vec<_> =
        acts.iter().rev().map(|act| fields.map(|field| act[field].as_str().unwrap())).collect();
    assert_eq!(found, [["ada", "role_refused", ""], ["root", "ok", "5 of 5 rows"]]);
    kit.close().await;
}
