//! Texts that look as values look which were encrypted, and are none: nobody is kept from anything by one.

use tidemill::core::webhook::Webhook;
use tidemill::testing::{drain, tend};
use tidemill::{
    Context, Enqueue, Event, Fail, Job, Keyring, Payload, Progress, Retry, Said, Settings, State,
    Tidemill,
};

use super::kit::{Kit, SOON};

over_both_stores!(
    words_of_a_stream_keep_nobody_from_it_nor_from_its_job,
    a_run_whose_messages_look_so_is_read_and_goes_on,
    a_delivery_of_an_error_that_looks_so_is_told,
);

const KEY: &str = "own AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

fn looks_so() -> String {
    format!("tdm1:other:{}", "A".repeat(100))
}

/// Without a key, and with one that is not the one which is named.
async fn mills(kit: &Kit) -> [Tidemill; 2] {
    let keys = Keyring::parse(KEY).unwrap();
    [kit.open().await, Tidemill::builder().keys(keys).open(&kit.url).await.unwrap()]
}

async fn words_of_a_stream_keep_nobody_from_it_nor_from_its_job(kit: Kit) {
    let mill = kit.open().await;
    let speak = |payload: Payload, cx: Context| async move {
        let said = if payload.as_str() == "1" { looks_so() } else { "plain".to_owned() };
        cx.text(said.clone()).await.map_err(Fail::transient)?;
        cx.progress(Progress::of(1, 2).message(said)).await.map_err(Fail::transient)?;
        Ok(payload)
    };
    let odd = mill.enqueue(Enqueue::raw("speak", "1")).await.unwrap().id();
    let plain = mill.enqueue(Enqueue::raw("speak", "2")).await.unwrap().id();
    // Both are read together.
    let mut follows = [mill.stream(odd, 0).await.unwrap(), mill.stream(plain, 0).await.unwrap()];
    let worker = mill.worker().handle_raw("speak", Settings::default(), speak);
    let worker = worker.start().await.unwrap();
    let mut told = Vec::new();
    for follow in &mut follows {
        let mut texts = Vec::new();
        while let Some(event) = tokio::time::timeout(SOON, follow.next()).await.unwrap().unwrap() {
            match event {
                Event::Chunk(chunk) => {
                    if let Said::Text { text } = chunk.said {
                        texts.push(text);
                    }
                }
                Event::End(end) => assert_eq!(end.state, State::Done),
            }
        }
        told.push(texts);
    }
    assert!(told[0][0].starts_with("unreadable: ") && told[0][0].contains("other"), "{told:?}");
    assert_eq!(told[1], ["plain"]);
    let progress = mill.job(odd).await.unwrap().unwrap().progress.unwrap();
    assert!(progress.message.unwrap().starts_with("unreadable: "));
    worker.stop().await;
    mill.close().await;
}

/// A step that fails so, and one behind it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Mutter;

impl Job for Mutter {
    const KIND: &'static str = "mutter";
    type Output = String;
}

async fn mutter(_: Mutter, cx: Context) -> Result<String, Fail> {
    let failed = cx.step("a").run(|_| async { Err::<(), _>(Fail::permanent(looks_so())) }).await;
    let kept: String = cx.step("b").run(|_| async { Ok("kept".to_owned()) }).await?;
    if cx.attempt() == 1 {
        return Err(Fail::transient("once more, by the journal"));
    }
    assert!(failed.unwrap_err().to_string().contains("tdm1:other:"));
    Ok(kept)
}

async fn a_run_whose_messages_look_so_is_read_and_goes_on(kit: Kit) {
    for mill in mills(&kit).await {
        let retry = Retry::attempts(2).backoff(tidemill::Backoff::Fixed { delay_ms: 0 });
        let worker = mill.worker().handle(mutter).start().await.unwrap();
        let id = mill.enqueue(Enqueue::from(Mutter).retry(retry)).await.unwrap().id();
        assert_eq!(mill.result::<Mutter>(id, SOON).await.unwrap(), "kept");
        let (rows, _) = mill.store().journal(id).await.unwrap();
        assert!(rows.iter().any(|row| row.entry.contains("tdm1:other:")), "{rows:?}");
        assert!(rows.iter().any(|row| row.entry.contains("\"kept\"")), "{rows:?}");
        worker.stop().await;
        mill.close().await;
    }
}

async fn a_delivery_of_an_error_that_looks_so_is_told(kit: Kit) {
    for mill in mills(&kit).await {
        let hook = Webhook {
            queues: vec!["*".into()],
            output: true,
            ..Webhook::new("https://example.com/in")
        };
        mill.webhooks().set("w", hook).await.unwrap();
        let act = |payload: Payload, _| async move {
            if payload.as_str() == "1" { Err(Fail::permanent(looks_so())) } else { Ok(payload) }
        };
        let worker = mill.worker().handle_raw("act", Settings::default(), act);
        for payload in ["1", r#"{"n":2}"#] {
            mill.enqueue(Enqueue::raw("act", payload)).await.unwrap();
        }
        drain(worker).await.unwrap();
        tend(&mill).await.unwrap();
        let (all, _) = mill.webhooks().deliveries("w", None, None, 10).await.unwrap();
        let mut events: Vec<_> = all.iter().map(|one| one.event.as_str()).collect();
        events.sort_unstable();
        assert_eq!(events, ["job.dead", "job.done"]);
        for one in &all {
            let told = mill.job(one.id).await.unwrap().unwrap().job.payload.into_string();
            let says = if one.event == "job.dead" { looks_so() } else { r#""n":2"#.to_owned() };
            assert!(told.contains(&says), "{told}");
        }
        mill.webhooks().delete("w").await.unwrap();
        mill.close().await;
    }
}
