//! A plain `INSERT` into the view: the same text on both databases, taken or refused as the library
//! takes or refuses it, with the same code, and nothing written when it is refused.

use rusqlite::Connection;
use tidemill_core::{JobId, Limits, NewJob, OnDead, Options, OwnRetry, Payload, Priority, State};
use tidemill_store::JobFilter;

use super::kit::{HOUR, Kit, job, ordered};

over_both_stores!(
    payloads_are_judged_as_by_the_library,
    payloads_are_as_deep_as_the_library_lets_them_be,
    bad_rows_are_refused_with_their_code,
    retries_are_checked_to_the_letter,
    traces_are_checked_to_the_letter,
    whether_it_is_forced_is_read_as_a_word,
    the_function_refuses_with_a_code,
    a_bad_row_takes_the_good_rows_of_its_statement_with_it,
    every_column_is_a_wish,
    what_contradicts_itself_is_refused_in_the_same_words,
    an_id_that_another_job_has_is_refused,
    order_is_a_column_or_an_option,
    a_line_is_of_a_tenant,
);

/// Runs a statement as a stranger would; answers what the database said if it said no.
pub async fn run(kit: &Kit, sql: &str) -> Result<(), String> {
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        let done = Connection::open(file).unwrap().execute(sql, []);
        return done.map(|_| ()).map_err(|error| error.to_string());
    }
    let (client, connection) =
        tokio_postgres::connect(&kit.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let done = client.execute(sql, &[]).await;
    done.map(|_| ()).map_err(|error| error.as_db_error().unwrap().message().to_owned())
}

/// Inserts one row; answers the code with which it was refused.
async fn insert(kit: &Kit, columns: &str, values: &str) -> Option<String> {
    let sql = format!("INSERT INTO tidemill_enqueue ({columns}) VALUES ({values})");
    let said = run(kit, &sql).await.err()?;
    let code = said.strip_prefix("tidemill: ").and_then(|said| said.split(':').next());
    Some(code.unwrap_or_else(|| panic!("no code in {said:?} of {sql}")).to_owned())
}

/// What is and what is not JSON that a database can keep.
const PAYLOADS: [&str; 39] = [
    r#"[1e999999, "\" 1e999999 \u00e91234"]"#,
    r#"[1e999999, "\u0000"]"#,
    r#"[1e999999, "\ud800"]"#,
    "[1e999999, oops]",
    r#"[1e999999, "a"#,
    "null",
    " \t{\"a\": [1, 2.50, 1e400, 9007199254740993]}\n",
    r#""été \u00e9 ☕""#,
    r#""\ud83d\ude00""#,
    r#""\uD83D\uDE00\ud83D\uDe00""#,
    r#"{"\ud83d\ude00":"\udbff\udfff"}"#,
    r#""\ud7ff\ue000 \\ud800 \\\\udc00""#,
    r#""\\u0000 \n\"\/\b\f\r\t""#,
    // Halves of pairs.
    r#""\ud800""#,
    r#""\uDFFF""#,
    r#""a\ud83d""#,
    r#""a\ud83db""#,
    r#""a\ude00b""#,
    r#""\ude00\ud83d""#,
    r#""\ud83d\ud83d\ude00""#,
    r#""\ud83d\ude00\ude00""#,
    r#""\ud83d \ude00""#,
    r#""\ud83d\\\ude00""#,
    r#""\ud83d\u0041""#,
    r#""\\\ud800""#,
    r#"["\ud83d","\ude00"]"#,
    r#"{"\ud800":1}"#,
    r#"{"a":{"b":["\udc00"]}}"#,
    // The character that no text column keeps.
    r#""\u0000""#,
    r#"{"a\u0000":1}"#,
    r#""\\\u0000""#,
    // Not JSON.
    "",
    "{",
    "nul",
    "01",
    "{'a':1}",
    "\"a\u{1}b\"",
    r#"{"a":"\ud83d\ude00""#,
    r#""\ud8""#,
];

async fn payloads_are_judged_as_by_the_library(kit: &Kit) {
    for text in PAYLOADS {
        let parsed = Payload::parse(text, &Limits::default());
        let id = JobId::new();
        let quoted = text.replace('\'', "''");
        let refused = insert(kit, "id, kind, payload", &format!("'{id}', 'k', '{quoted}'")).await;
        let expected = parsed.as_ref().err().map(|error| error.code().to_owned());
        assert_eq!(refused, expected, "{text:?}");
        let kept = kit.store.job(id).await.unwrap().map(|view| view.job.payload);
        assert_eq!(kept, parsed.ok(), "{text:?} arrives as it was, or not at all");
    }
}

async fn payloads_are_as_deep_as_the_library_lets_them_be(kit: &Kit) {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    for text in [
        nested("[", "]", 64),
        nested("[", "]", 65),
        nested(r#"{"a":"#, "}", 64),
        nested(r#"{"a":"#, "}", 65),
        nested(r#"[0,{"[":"#, "}]", 32),
        nested(r#"[0,{"[":"#, "}]", 33),
        nested("[", "]", 3000),
        format!("[{}1]", "[{}],".repeat(500)),
        format!("\"{}\"", "[".repeat(500)),
        format!(r#"["{}\"[",{}]"#, "[{".repeat(500), nested("[", "]", 63)),
        format!(r#"["{}\"[",{}]"#, "[{".repeat(500), nested("[", "]", 64)),
    ] {
        let expected = Payload::parse(&text, &Limits::default()).err();
        let refused = insert(kit, "kind, payload", &format!("'k', '{text}'")).await;
        assert_eq!(refused.as_deref(), expected.map(|error| error.code()), "{text}");
    }
}

async fn bad_rows_are_refused_with_their_code(kit: &Kit) {
    let long = format!("'{}'", "k".repeat(201));
    for (columns, values, code) in [
        ("payload", "'null'", "name_empty"),
        ("kind", "''", "name_empty"),
        ("kind, queue", "'k', ''", "name_empty"),
        ("kind, unique_key", "'k', ''", "name_empty"),
        ("kind", &*long, "name_too_long"),
        ("kind, key", &*format!("'k', {long}"), "name_too_long"),
        ("kind, tenant", "'k', 'a\tb'", "name_invalid"),
        ("kind", "' '", "name_invalid"),
        ("kind, queue", "'k', 'q '", "name_invalid"),
        ("kind, tenant", "'k', '\u{a0}t'", "name_invalid"),
        ("kind, key", "'k', ' k'", "name_invalid"),
        ("kind, priority", "'k', 'fast'", "word_unknown"),
        ("kind, priority", "'k', '4'", "word_unknown"),
        ("kind, unique_key, unique_scope", "'k', 'u', 'today'", "word_unknown"),
        ("kind, unique_key, on_duplicate", "'k', 'u', 'shrug'", "word_unknown"),
        ("kind, unique_key, unique_scope", "'k', 'u', 'period'", "duration_invalid"),
        ("kind, delay_ms", "'k', -1", "duration_invalid"),
        ("kind, delay_ms", "'k', 9000000000000000000", "duration_invalid"),
        ("kind, unique_period_ms", "'k', -1", "duration_invalid"),
        (
            "kind, unique_key, unique_scope, unique_period_ms",
            "'k', 'u', 'period', 0",
            "rule_invalid",
        ),
        ("kind, options", "'k', '{\"start_within_ms\":0}'", "rule_invalid"),
        ("kind, options", "'k', '{\"finish_within_ms\":0}'", "rule_invalid"),
        ("kind, run_at", "'k', 'someday'", "time_invalid"),
        ("kind, run_at", "'k', '2026-13-01T00:00:00Z'", "time_invalid"),
        ("kind, run_at", "'k', '2999-01-01T00:00:00Z'", "due_too_far"),
        (
            "kind, delay_ms, options",
            "'k', 60000, '{\"finish_within_ms\":60000}'",
            "wish_contradiction",
        ),
        ("kind, options", "'k', '{'", "options_invalid"),
        ("kind, options", "'k', 'null'", "options_invalid"),
        ("kind, options", "'k', '[]'", "options_invalid"),
        ("kind, options", "'k', '{\"tags\":1}'", "options_invalid"),
        ("kind, options", "'k', '{\"tag\":[]}'", "word_unknown"),
        ("kind, options", "'k', '{\"tags\":[\"\"]}'", "options_invalid"),
        (
            "kind, options",
            "'k', '{\"run_timeout_ms\":100000000000000000000000}'",
            "options_invalid",
        ),
        ("kind, options", "'k', '{\"run_timeout_ms\":0}'", "rule_invalid"),
        ("kind, options", "'k', '{\"retain_ms\":900000000000000000}'", "duration_invalid"),
        ("kind, options", "'k', '{\"finish_within_ms\":31622400000001}'", "duration_invalid"),
        ("kind", "'tidemill:webhook'", "name_reserved"),
        ("kind, queue", "'k', 'tidemill:webhooks'", "name_reserved"),
        ("kind, options", r#"'k', '{"tags":["a\u0000"]}'"#, "options_invalid"),
        ("kind, options", r#"'k', '{"tags":["a\tb"]}'"#, "name_invalid"),
        ("kind, options", r#"'k', '{"tags":["a "]}'"#, "name_invalid"),
        ("kind, options", r#"'k', '{"trace":"junk"}'"#, "trace_invalid"),
        ("kind, options", r#"'k', '{"trace":""}'"#, "trace_invalid"),
        ("kind, run_at", "'k', ''", "time_invalid"),
        ("kind, run_at", "'k', '12:00'", "time_invalid"),
        ("kind, run_at", "'k', '1900000000'", "time_invalid"),
        ("kind, ordered", "'k', 'block'", "key_missing"),
        ("kind, options", "'k', '{\"ordered\":\"skip\"}'", "key_missing"),
        ("kind, key, ordered", "'k', 'a', 'shrug'", "word_unknown"),
        ("kind, key, options", "'k', 'a', '{\"ordered\":\"shrug\"}'", "word_unknown"),
        ("kind, key, options", "'k', 'a', '{\"ordered\":1}'", "options_invalid"),
    ] {
        let refused = insert(kit, columns, values).await;
        assert_eq!(refused.as_deref(), Some(code), "({columns}) ({values})");
    }
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

/// As the library reads them.
async fn traces_are_checked_to_the_letter(kit: &Kit) {
    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for trace in [
        GOOD.to_owned(),
        format!(" {GOOD} "),
        format!("01{}-what-comes", &GOOD[2..]),
        format!("01{}", &GOOD[2..]),
        format!("01{}1", &GOOD[2..]),
        format!("ff{}", &GOOD[2..]),
        format!("{GOOD}-more"),
        GOOD.to_uppercase(),
        GOOD[1..].to_owned(),
        GOOD.replace('-', "_"),
        format!("00-{:032x}-b7ad6b7169203331-01", 0),
        format!("00-0af7651916cd43dd8448eb211c80319c-{:016x}-01", 0),
        format!("01{}-{}", &GOOD[2..], "x".repeat(1024)),
    ] {
        let options = Options { trace: Some(trace.clone()), ..Options::default() };
        let checked = NewJob { options, ..job("k") }.check(&Limits::default(), kit.clock.now());
        let values = format!("'k', '{{\"trace\":\"{trace}\"}}'");
        let refused = insert(kit, "kind, options", &values).await;
        assert_eq!(refused.is_some(), checked.is_err(), "{trace:?}: {refused:?}");
    }
}

/// Text in a column that says whether: some drivers and tools send nothing else.
async fn whether_it_is_forced_is_read_as_a_word(kit: &Kit) {
    assert_eq!(insert(kit, "kind, unique_key", "'k', 'u'").await, None);
    for (word, waiting) in [("false", 1), ("f", 1), ("0", 1), ("true", 2), ("on", 3), ("1", 4)] {
        let values = format!("'k', 'u', '{word}'");
        assert_eq!(insert(kit, "kind, unique_key, force", &values).await, None, "{word}");
        assert_eq!(kit.store.unfinished().await.unwrap().waiting, waiting, "{word}");
    }
    if kit.store.backend() == "sqlite" {
        let refused = insert(kit, "kind, unique_key, force", "'k', 'u', 'perhaps'").await;
        assert_eq!(refused.as_deref(), Some("word_unknown"));
    }
}

async fn the_function_refuses_with_a_code(kit: &Kit) {
    if kit.store.backend() == "sqlite" {
        return;
    }
    for (options, code) in [
        ("{", "options_invalid"),
        ("[]", "options_invalid"),
        ("5", "options_invalid"),
        (r#"{"queue":"a\u0000"}"#, "options_invalid"),
        (r#"{"tags":["a\u0000"]}"#, "options_invalid"),
        (r#"{"delay_ms":"soon"}"#, "options_invalid"),
        (r#"{"force":"perhaps"}"#, "options_invalid"),
        (r#"{"id":"junk"}"#, "id_invalid"),
        (r#"{"queue":"tidemill:webhooks"}"#, "name_reserved"),
    ] {
        let sql = format!("select tidemill.enqueue('k', 'null', '{options}')");
        let said = run(kit, &sql).await.unwrap_err();
        assert!(said.starts_with(&format!("tidemill: {code}: ")), "{options}: {said}");
    }
    run(kit, "select tidemill.enqueue('k', 'null', null)").await.unwrap();
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1);
}

async fn retries_are_checked_to_the_letter(kit: &Kit) {
    for bad in [
        r#"{"nope":1}"#,
        r#"{"attempts_max":0}"#,
        r#"{"attempts_max":65536}"#,
        r#"{"attempts_max":"many"}"#,
        r#"{"attempts_max":"5"}"#,
        r#"{"attempts_max":1e1}"#,
        r#"{"backoff":{"type":"fixed","delay_ms":"1000"}}"#,
        r#"{"backoff":{"type":"custom","delays_ms":["1"]}}"#,
        r#"{"ambiguous_max":1.5}"#,
        r#"{"backoff":5}"#,
        r#"{"backoff":{}}"#,
        r#"{"backoff":{"type":"soon"}}"#,
        r#"{"backoff":{"type":"fixed"}}"#,
        r#"{"backoff":{"type":"fixed","delay_ms":-1}}"#,
        r#"{"backoff":{"type":"exponential","base_ms":2,"cap_ms":1}}"#,
        r#"{"backoff":{"type":"exponential","base_ms":1,"cap_ms":2,"jitter":"some"}}"#,
        r#"{"backoff":{"type":"decorrelated","base_ms":1}}"#,
        r#"{"backoff":{"type":"custom","delays_ms":[]}}"#,
        r#"{"backoff":{"type":"custom","delays_ms":["1s"]}}"#,
    ] {
        let options = format!("'k', '{{\"retry\":{bad}}}'");
        let refused = insert(kit, "kind, options", &options).await;
        assert_eq!(refused.as_deref(), Some("options_invalid"), "{bad}");
    }
    let good = [
        "{}",
        r#"{"attempts_max":1,"ambiguous_max":65535}"#,
        r#"{"backoff":{"type":"fixed","delay_ms":0}}"#,
        r#"{"backoff":{"type":"exponential","base_ms":1,"cap_ms":1}}"#,
        r#"{"backoff":{"type":"exponential","base_ms":1,"cap_ms":2,"jitter":"none"}}"#,
        r#"{"backoff":{"type":"decorrelated","base_ms":1,"cap_ms":2}}"#,
        r#"{"backoff":{"type":"custom","delays_ms":[1,2]}}"#,
    ];
    for good in good {
        let options = format!("'k', '{{\"retry\":{good}}}'");
        assert_eq!(insert(kit, "kind, options", &options).await, None, "{good}");
    }
    let worker = kit.worker().await;
    let claim = kit.take(worker, good.len()).await;
    for (taken, good) in claim.jobs.iter().zip(good) {
        let read: OwnRetry = serde_json::from_str(good).unwrap();
        assert_eq!(taken.job.options.retry.as_ref(), Some(&read), "{good}");
    }
}

async fn a_bad_row_takes_the_good_rows_of_its_statement_with_it(kit: &Kit) {
    assert_eq!(insert(kit, "kind", "'a'), ('b'), (''").await.as_deref(), Some("name_empty"));
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
    assert_eq!(insert(kit, "kind", "'a'), ('b'), ('c'").await, None);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 3);
}

async fn every_column_is_a_wish(kit: &Kit) {
    let id = JobId::new();
    let columns = "id, kind, payload, queue, priority, delay_ms, tenant, key, unique_key, \
                   unique_scope, unique_period_ms, on_duplicate, force, options";
    let values = format!(
        "'{id}', 'k', '{{\"a\":1}}', 'mail', 'urgent', 3600000, 't', 'c:1', 'u', 'period', 60000, \
         'join', false, '{{\"tags\":[\"blue\"],\"retain_ms\":5}}'"
    );
    // The second time it is sent it is there already.
    for _ in 0..2 {
        assert_eq!(insert(kit, columns, &values).await, None);
    }
    let job = kit.store.jobs(&JobFilter::default()).await.unwrap().jobs.remove(0);
    assert_eq!((job.job.id, job.state), (id, State::Scheduled));
    assert_eq!(job.due_at.unwrap(), job.job.created_at + HOUR);
    let job = job.job;
    assert_eq!((&*job.queue, job.priority), ("mail", Priority::Urgent));
    assert_eq!((job.tenant.as_deref(), job.key.as_deref()), (Some("t"), Some("c:1")));
    assert_eq!(job.unique_key.as_deref(), Some("k=u\u{1f}t"), "of its tenant");
    assert_eq!((job.payload.as_str(), job.options.retain_ms), (r#"{"a":1}"#, Some(5)));
    assert_eq!(job.options.tags, ["blue"]);
}

async fn what_contradicts_itself_is_refused_in_the_same_words(kit: &Kit) {
    let same = "duplicates need something that makes them the same";
    let wishes = "wish_contradiction: the wishes of the job contradict each other";
    for (columns, values, wish, expected) in [
        (
            "on_duplicate",
            "'join'",
            r#"{"on_duplicate":"join"}"#,
            format!("{wishes}: on_duplicate is given and unique_key is not; {same}"),
        ),
        (
            "force",
            "true",
            r#"{"force":true}"#,
            format!("{wishes}: force is true and unique_key is not given; {same}"),
        ),
        (
            "unique_scope",
            "'forever'",
            r#"{"unique_scope":"forever"}"#,
            format!("{wishes}: unique_scope is given and unique_key is not; {same}"),
        ),
        (
            "unique_period_ms",
            "5",
            r#"{"unique_period_ms":5}"#,
            format!("{wishes}: unique_period_ms is given and unique_key is not; {same}"),
        ),
        (
            "run_at, delay_ms",
            "'2026-01-02T03:04:05Z', 0",
            r#"{"run_at":"2026-01-02T03:04:05Z","delay_ms":0}"#,
            format!(
                "{wishes}: delay_ms and run_at are both given; a job starts after a delay or at a time, not both"
            ),
        ),
        (
            "options",
            r#"'{"run_timeout_ms":0}'"#,
            r#"{"run_timeout_ms":0}"#,
            "rule_invalid: the rule of the run timeout is refused: 0 would end every attempt as it begins; give at \
             least 1 ms"
                .to_owned(),
        ),
    ] {
        let sql =
            format!("INSERT INTO tidemill_enqueue (kind, {columns}) VALUES ('k', {values})");
        assert_eq!(run(kit, &sql).await, Err(format!("tidemill: {expected}")), "{columns}");
        if kit.url.starts_with("postgres") {
            let sql = format!("select tidemill.enqueue('k', 'null', '{wish}')");
            assert_eq!(run(kit, &sql).await, Err(format!("tidemill: {expected}")), "{wish}");
        }
    }
    assert_eq!(insert(kit, "kind, force", "'k', false").await, None, "not forced is no wish");
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1);
}

async fn an_id_that_another_job_has_is_refused(kit: &Kit) {
    let id = JobId::new();
    let columns = "id, kind, payload, queue, tenant";
    let row = |kind: &str, payload: &str, queue: &str, tenant: &str| {
        format!("'{id}', '{kind}', '{payload}', '{queue}', {tenant}")
    };
    assert_eq!(insert(kit, columns, &row("k", r#"{"a": 1}"#, "q", "'t'")).await, None);
    for same in [row("k", r#"{"a": 1}"#, "q", "'t'"), row("k", r#"{"a":1} "#, "q", "'t'")] {
        assert_eq!(insert(kit, columns, &same).await, None, "sent again: {same}");
    }
    for (kind, payload, queue, tenant) in [
        ("j", r#"{"a":1}"#, "q", "'t'"),
        ("k", r#"{"a":2}"#, "q", "'t'"),
        ("k", r#"{"a":1}"#, "r", "'t'"),
        ("k", r#"{"a":1}"#, "q", "'u'"),
        ("k", r#"{"a":1}"#, "q", "null"),
    ] {
        let other = row(kind, payload, queue, tenant);
        assert_eq!(insert(kit, columns, &other).await.as_deref(), Some("id_taken"), "{other}");
        let keyed = insert(kit, &format!("{columns}, unique_key"), &format!("{other}, 'u'")).await;
        assert_eq!(keyed.as_deref(), Some("id_taken"), "{other}");
    }
    let two = format!("'{}', 'k', '1', 'q', null), ({}", JobId::new(), row("k", "2", "q", "'t'"));
    assert_eq!(insert(kit, columns, &two).await.as_deref(), Some("id_taken"));
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 1, "nor the rest of its statement");

    // One that took over what a duplicate said is still itself.
    let columns = "id, kind, payload, unique_key, on_duplicate";
    let held = JobId::new();
    let first = format!("'{held}', 'k', '1', 'u', 'replace'");
    assert_eq!(insert(kit, columns, &first).await, None);
    let second = format!("'{}', 'k', '2', 'u', 'replace'", JobId::new());
    assert_eq!(insert(kit, columns, &second).await, None);
    assert_eq!(kit.view(held).await.job.payload.as_str(), "2");
    assert_eq!(insert(kit, columns, &first).await, None);
    assert_eq!(kit.view(held).await.job.payload.as_str(), "2", "and stays as it is");
}

async fn a_line_is_of_a_tenant(kit: &Kit) {
    for (kind, tenant) in
        [("a1", "'a'"), ("b1", "'b'"), ("c1", "null"), ("a2", "'a'"), ("c2", "null")]
    {
        let values = format!("'{kind}', 'c:1', {tenant}, 'block'");
        assert_eq!(insert(kit, "kind, key, tenant, ordered", &values).await, None);
    }
    let mut jobs = kit.store.jobs(&JobFilter::default()).await.unwrap().jobs;
    jobs.sort_by(|a, b| a.job.kind.cmp(&b.job.kind));
    let blocked: Vec<_> = jobs.iter().map(|view| view.state == State::Blocked).collect();
    assert_eq!(blocked, [false, true, false, false, true]);
    for behind in [1, 4] {
        let line = kit.store.line(jobs[behind].job.id).await.unwrap().unwrap();
        assert_eq!(line.head, jobs[behind - 1].job.id);
    }
    // One that comes by the library stands in the same line.
    let late = NewJob { tenant: Some("b".into()), ..ordered("c:1", OnDead::Block) };
    let late = kit.put(late).await;
    assert_eq!(kit.store.line(late).await.unwrap().unwrap().head, jobs[2].job.id);
    if kit.url.starts_with("postgres") {
        let wish = r#"{"key": "c:1", "tenant": "b", "ordered": "block"}"#;
        run(kit, &format!("select tidemill.enqueue('b3', 'null', '{wish}')")).await.unwrap();
        let filter = JobFilter { kind: Some("b3".into()), ..JobFilter::default() };
        let last = kit.store.jobs(&filter).await.unwrap().jobs.remove(0).job.id;
        let line = kit.store.line(last).await.unwrap().unwrap();
        assert_eq!((line.head, line.ahead), (jobs[2].job.id, 2));
    }
}

async fn order_is_a_column_or_an_option(kit: &Kit) {
    for (columns, values) in [
        ("kind, key, ordered", "'a', 'c:1', 'block'"),
        ("kind, key, options", "'b', 'c:1', '{\"ordered\":\"skip\"}'"),
        ("kind, key, ordered, options", "'c', 'c:1', 'block', '{\"retain_ms\":5}'"),
        // The column goes before the option.
        ("kind, key, ordered, options", "'d', 'c:1', 'skip', '{\"ordered\":\"block\"}'"),
        ("kind, key", "'e', 'c:1'"),
    ] {
        assert_eq!(insert(kit, columns, values).await, None, "({columns}) ({values})");
    }
    let mut jobs = kit.store.jobs(&JobFilter::default()).await.unwrap().jobs;
    jobs.sort_by(|a, b| a.job.kind.cmp(&b.job.kind));
    let wishes: Vec<_> = jobs.iter().map(|view| view.job.options.ordered).collect();
    let (block, skip) = (Some(OnDead::Block), Some(OnDead::Skip));
    assert_eq!(wishes, [block, skip, block, skip, None]);
    assert_eq!(jobs[2].job.options.retain_ms, Some(5));
    let blocked: Vec<_> = jobs.iter().map(|view| view.state == State::Blocked).collect();
    assert_eq!(blocked, [false, true, true, true, false]);
    for (view, ahead) in jobs[1..4].iter().zip(1..) {
        assert_eq!(kit.store.line(view.job.id).await.unwrap().unwrap().ahead, ahead);
    }
}
