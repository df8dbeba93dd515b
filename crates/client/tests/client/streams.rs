//! A stream goes on where it was when its connection breaks.

use std::net::SocketAddr;
use std::sync::Arc;

use tidemill::{Context, Enqueue, Event, Fail, JobId, Payload, Said, Settings, State};
use tidemill_client::Client;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, broadcast};

use super::kit::Kit;

over_both_stores!(a_broken_stream_goes_on_where_it_was, a_stream_of_nothing_is_refused);

/// Passes connections on to a server until it is told to cut them.
struct Cable {
    address: SocketAddr,
    cut: broadcast::Sender<()>,
}

impl Cable {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, _) = broadcast::channel(1);
        let cuts = cut.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = cuts.subscribe();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.recv() => {}
                    }
                });
            }
        });
        Self { address, cut }
    }
}

async fn a_broken_stream_goes_on_where_it_was(kit: Kit) {
    let turn = Arc::new(Notify::new());
    let turns = Arc::clone(&turn);
    let talk = move |payload: Payload, cx: Context| {
        let turns = Arc::clone(&turns);
        async move {
            for word in ["one", "two", "three"] {
                cx.text(word).await?;
                turns.notified().await;
            }
            Ok::<_, Fail>(payload)
        }
    };
    let worker = kit.mill.worker().handle_raw("talk", Settings::default(), talk);
    let worker = worker.start().await.unwrap();
    let cable = Cable::to(kit.server.address()).await;
    let client = Client::new(&format!("http://{}", cable.address)).unwrap();
    let id = client.enqueue(Enqueue::raw("talk", "1")).await.unwrap().id();
    let mut stream = client.stream(id, 0).await.unwrap();
    for (number, word) in [(1, "one"), (2, "two"), (3, "three")] {
        let Some(Event::Chunk(chunk)) = stream.next().await.unwrap() else { panic!("no {word}") };
        assert_eq!((chunk.number, chunk.said), (Some(number), Said::text(word)));
        assert_eq!(stream.seen(), number);
        cable.cut.send(()).unwrap();
        turn.notify_one();
    }
    let Some(Event::End(end)) = stream.next().await.unwrap() else { panic!("no end") };
    assert_eq!(end.state, State::Done);
    assert_eq!(stream.next().await.unwrap(), None);
    worker.stop().await;
    kit.close().await;
}

async fn a_stream_of_nothing_is_refused(kit: Kit) {
    let error = kit.client.stream(JobId::new(), 0).await.unwrap_err();
    assert_eq!(error.code(), "job_unknown");
    kit.close().await;
}
