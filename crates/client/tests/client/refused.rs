//! Reports that are refused, by the server or by what stands before it: each is told, and holds up nobody else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill::{Context, Enqueue, Fail, Grant, JobId, Payload, Receipt, Role, Settings, State};
use tidemill_client::Client;
use tidemill_server::{Access, Server};

use super::doorman::{Verdict, doorman};
use super::kit::Kit;

over_both_stores!(
    what_a_credential_may_not_bring_is_dead,
    an_outcome_that_is_too_large_for_a_proxy_is_dead,
    a_report_that_does_not_get_through_is_sent_until_it_does,
);

async fn enqueue(kit: &Kit, payloads: &[&str]) -> Vec<JobId> {
    let jobs = payloads.iter().map(|payload| Enqueue::raw("k", *payload).queue("mail:eu"));
    let receipts = kit.mill.enqueue_many(jobs).await.unwrap();
    receipts.iter().map(Receipt::id).collect()
}

/// Brings a job to a queue: with its end, or by its journal.
async fn bring(how: Payload, cx: Context) -> Result<Payload, Fail> {
    let other = Enqueue::raw("other", "1").queue("pay");
    match how.as_str() {
        "1" => drop(cx.follow_up(other)?),
        "2" => {
            cx.start(other).await?;
            cx.step("after").run(|_| async { Ok(()) }).await?;
        }
        _ => {}
    }
    Ok(how)
}

async fn what_a_credential_may_not_bring_is_dead(kit: Kit) {
    let grant = Grant { queues: vec!["mail:*".to_owned()], ..Grant::new(Role::Worker) };
    let (_, secret) = kit.mill.credentials().create("eu", grant, None).await.unwrap();
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let access = Access::Credentials;
    let settings = tidemill_server::Settings { listen, access, ..Default::default() };
    let server = Server::start(kit.mill.clone(), settings).await.unwrap();
    let client = Client::builder(&format!("http://{}", server.address()));
    let client = client.token(secret.reveal()).build().unwrap();
    let worker = client.worker().queues(["mail:eu"]).handle_raw("k", Settings::default(), bring);
    let worker = worker.start().await.unwrap();
    let ids = enqueue(&kit, &["1", "2", "3"]).await;
    for id in &ids[..2] {
        let view = kit.end(*id).await;
        assert_eq!(view.state, State::Dead);
        assert!(view.error.as_ref().unwrap().contains("queue_refused"), "{view:?}");
    }
    assert_eq!(kit.output::<i32>(ids[2]).await, 3);
    worker.stop().await;
    server.stop().await;
    kit.close().await;
}

async fn an_outcome_that_is_too_large_for_a_proxy_is_dead(kit: Kit) {
    let judge = |request: &str| match request.len() {
        100_000.. => Verdict::Stops("413 Request Entity Too Large"),
        _ => Verdict::Passes,
    };
    let client = doorman(kit.server.address(), judge).await;
    let handler = |bytes: Payload, _| async move {
        let bytes: usize = bytes.read()?;
        Ok(Payload::trusted(format!("\"{}\"", "x".repeat(bytes))))
    };
    let worker = client.worker().queues(["mail:eu"]).handle_raw("k", Settings::default(), handler);
    let ids = enqueue(&kit, &["50000", "50001", "200000", "50002", "50003"]).await;
    let worker = worker.start().await.unwrap();
    let large = kit.end(ids[2]).await;
    assert_eq!(large.state, State::Dead);
    assert!(large.error.as_ref().unwrap().contains("body_too_large"), "{large:?}");
    for (at, bytes) in [(0, 50_000), (1, 50_001), (3, 50_002), (4, 50_003)] {
        assert_eq!(kit.output::<String>(ids[at]).await.len(), bytes);
    }
    worker.stop().await;
    kit.close().await;
}

/// Something on the way does not like it, and does not say why.
async fn a_report_that_does_not_get_through_is_sent_until_it_does(kit: Kit) {
    let is_open = Arc::new(AtomicBool::new(false));
    let opens = Arc::clone(&is_open);
    let judge = move |request: &str| {
        let is_stopped = request.contains("odd word") && !opens.load(Ordering::SeqCst);
        if is_stopped { Verdict::Stops("403 Forbidden") } else { Verdict::Passes }
    };
    let client = doorman(kit.server.address(), judge).await;
    let handler = |number: Payload, _| async move {
        Ok(if number.as_str() == "2" {
            Payload::trusted("\"odd word\"".to_owned())
        } else {
            number
        })
    };
    let worker = client.worker().queues(["mail:eu"]).handle_raw("k", Settings::default(), handler);
    let ids = enqueue(&kit, &["1", "2", "3"]).await;
    let worker = worker.start().await.unwrap();
    for (at, number) in [(0, 1), (2, 3)] {
        assert_eq!(kit.output::<i32>(ids[at]).await, number);
    }
    let later = enqueue(&kit, &["4"]).await;
    assert_eq!(kit.output::<i32>(later[0]).await, 4, "it is not behind the odd one");
    assert_eq!(kit.mill.job(ids[1]).await.unwrap().unwrap().state, State::Running);
    is_open.store(true, Ordering::SeqCst);
    assert_eq!(kit.output::<String>(ids[1]).await, "odd word");
    worker.stop().await;
    kit.close().await;
}
