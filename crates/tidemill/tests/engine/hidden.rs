//! What is not to be seen of a payload is in no error and no stream of its job; its handler has it whole.

use std::time::Duration;

use tidemill::{Context, Enqueue, Event, Fail, Payload, Progress, Redaction, Settings, Tidemill};

use super::kit::Kit;

over_both_stores!(nothing_that_a_job_says_has_what_is_hidden);

const SECRET: &str = "tulips-and-roses";

async fn pay(payload: Payload, cx: Context) -> Result<Payload, Fail> {
    assert!(payload.as_str().contains(SECRET), "who runs it has it whole");
    cx.log(format!("paying with {SECRET}")).await.map_err(Fail::transient)?;
    let so_far = Progress::of(1, 2).message(format!("{SECRET} was taken"));
    cx.progress(so_far).await.map_err(Fail::transient)?;
    let fail = || async { Err::<(), _>(Fail::permanent(format!("{SECRET} is no card"))) };
    cx.step("charge").run(|_| fail()).await?;
    Ok(payload)
}

async fn nothing_that_a_job_says_has_what_is_hidden(kit: Kit) {
    let hidden = Redaction::parse(["card"]).unwrap();
    let mill = Tidemill::builder().hide(hidden).open(&kit.url).await.unwrap();
    let worker = mill.worker().handle_raw("pay", Settings::default(), pay).start().await.unwrap();
    let payload = format!(r#"{{"card":"{SECRET}"}}"#);
    let id = mill.enqueue(Enqueue::raw("pay", &*payload)).await.unwrap().id();
    let view = mill.wait(id, Duration::from_mins(1)).await.unwrap();
    let error = view.error.unwrap();
    assert!(error.contains("[hidden] is no card") && !error.contains(SECRET), "{error}");
    let journal = mill.journal(id).await.unwrap();
    assert!(!journal.is_empty() && !format!("{journal:?}").contains(SECRET), "{journal:?}");
    assert_eq!(
        view.job.payload.as_str(),
        payload,
        "a program that reads its own jobs has them whole"
    );
    let (mut stream, mut said) = (mill.stream(id, 0).await.unwrap(), Vec::new());
    while let Some(event) = stream.next().await.unwrap() {
        if let Event::Chunk(chunk) = event {
            said.push(serde_json::to_string(&chunk.said).unwrap());
        }
    }
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said.iter().all(|said| said.contains("[hidden]") && !said.contains(SECRET)),
        "{said:?}"
    );
    let letters = mill.dead().list(&tidemill::DeadFilter::default(), None, 10).await.unwrap();
    assert!(!format!("{letters:?}").contains(SECRET), "{letters:?}");
    worker.stop().await;
    mill.close().await;
}
