//! Streams: what a handler says is followed from anywhere, in order, without a gap, to the end of its job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill::testing::drain;
use tidemill::{
    Context, Enqueue, Event, Fail, Follow, JobId, Limits, Payload, Progress, Retry, Running, Said,
    Settings, State, Tidemill,
};
use tidemill_store::Hint;
use tidemill_testkit::eventually::eventually;
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use super::kit::{Kit, SOON};

over_both_stores!(
    a_stream_is_followed_while_it_grows_and_ends_with_its_job,
    a_stream_is_followed_from_another_node_and_resumed_without_a_gap,
    all_that_was_said_is_kept_when_the_job_ends_however_it_ends,
    numbers_go_on_over_attempts,
    who_is_slow_misses_nothing,
    many_follow_one_stream,
    who_says_to_have_read_more_than_there_is_blinds_nobody,
    a_chunk_reaches_another_node_at_once,
    what_is_ephemeral_reaches_who_listens_alone,
    too_much_is_refused_and_what_fits_is_kept,
    an_attempt_that_lost_its_lease_says_no_more,
    a_stream_of_an_unknown_job_is_refused,
    one_who_says_more_than_is_written_waits,
    a_row_that_cannot_be_read_blinds_those_alone_who_follow_it,
    rows_that_cannot_be_read_are_told_to_who_follows_them_also_where_there_are_no_others,
);

/// What a puppet is told to do.
enum Order {
    Text(String),
    Ephemeral(String),
    End(Result<(), Fail>),
}

type Told = (Order, oneshot::Sender<tidemill::Result<()>>);

/// A handler that does what it is told.
struct Puppet(mpsc::UnboundedSender<Told>);

impl Puppet {
    /// A worker for the kind `puppet`, and who tells its handler.
    async fn start(mill: &Tidemill) -> (Self, Running) {
        let (orders, told) = mpsc::unbounded_channel::<Told>();
        let worker = mill.worker().state(Mutex::new(told)).handle_raw("puppet", settings(), dance);
        (Self(orders), worker.start().await.unwrap())
    }

    async fn tell(&self, order: Order) -> tidemill::Result<()> {
        let (answer, answered) = oneshot::channel();
        self.0.send((order, answer)).ok().unwrap();
        answered.await.unwrap()
    }

    async fn text(&self, text: &str) {
        self.tell(Order::Text(text.to_owned())).await.unwrap();
    }

    async fn end(&self) {
        self.tell(Order::End(Ok(()))).await.unwrap();
    }
}

fn settings() -> Settings {
    Settings::default()
}

fn once() -> Retry {
    Retry { attempts_max: 1, ambiguous_max: 1, ..Retry::default() }
}

async fn dance(_: Payload, cx: Context) -> Result<Payload, Fail> {
    let orders = cx.state::<Mutex<mpsc::UnboundedReceiver<Told>>>()?;
    let mut orders = orders.lock().await;
    while let Some((order, answer)) = orders.recv().await {
        let done = match order {
            Order::Text(text) => cx.text(text).await,
            Order::Ephemeral(text) => cx.ephemeral(Said::text(text)).await,
            Order::End(how) => {
                let _ = answer.send(Ok(()));
                return how.map(|()| Payload::null());
            }
        };
        let _ = answer.send(done);
    }
    Ok(Payload::null())
}

async fn enqueue(mill: &Tidemill) -> JobId {
    mill.enqueue(Enqueue::raw("puppet", "null")).await.unwrap().id()
}

/// What comes next: a number and a text, or the state at the end.
async fn next(follow: &mut Follow) -> Result<(Option<u64>, String), State> {
    let event = tokio::time::timeout(SOON, follow.next()).await.expect("something comes").unwrap();
    match event.expect("it has not ended") {
        Event::Chunk(chunk) => match chunk.said {
            Said::Text { text } => Ok((chunk.number, text)),
            other => panic!("{other:?}"),
        },
        Event::End(end) => Err(end.state),
    }
}

/// All that still comes, numbered from here without a gap, and how it ended.
async fn rest(follow: &mut Follow, from: u64) -> (Vec<String>, State) {
    let mut texts = Vec::new();
    loop {
        match next(follow).await {
            Ok((number, text)) => {
                assert_eq!(number, Some(from + texts.len() as u64), "no gap, in order");
                texts.push(text);
            }
            Err(state) => return (texts, state),
        }
    }
}

async fn a_stream_is_followed_while_it_grows_and_ends_with_its_job(kit: Kit) {
    let mill = kit.open().await;
    let id = enqueue(&mill).await;
    let mut early = mill.stream(id, 0).await.unwrap();
    let (puppet, worker) = Puppet::start(&mill).await;
    puppet.text("a").await;
    assert_eq!(next(&mut early).await, Ok((Some(1), "a".to_owned())));
    puppet.text("b").await;
    assert_eq!(next(&mut early).await, Ok((Some(2), "b".to_owned())));
    let mut late = mill.stream(id, 1).await.unwrap();
    assert_eq!(next(&mut late).await, Ok((Some(2), "b".to_owned())));
    puppet.text("c").await;
    puppet.end().await;
    for follow in [&mut early, &mut late] {
        assert_eq!(rest(follow, 3).await, (vec!["c".to_owned()], State::Done));
        assert_eq!(follow.next().await.unwrap(), None, "nothing follows the end");
    }
    let mut after = mill.stream(id, 0).await.unwrap();
    assert_eq!(
        rest(&mut after, 1).await,
        (["a", "b", "c"].map(String::from).to_vec(), State::Done)
    );
    worker.stop().await;
    mill.close().await;
}

async fn a_stream_is_followed_from_another_node_and_resumed_without_a_gap(kit: Kit) {
    let (mill, there, elsewhere) = (kit.open().await, kit.open().await, kit.open().await);
    let id = enqueue(&mill).await;
    let (puppet, worker) = Puppet::start(&mill).await;
    let mut follow = there.stream(id, 0).await.unwrap();
    for n in 1..=20 {
        puppet.text(&n.to_string()).await;
    }
    for n in 1..=10_u64 {
        assert_eq!(next(&mut follow).await, Ok((Some(n), n.to_string())));
    }
    drop(follow);
    for n in 21..=30 {
        puppet.text(&n.to_string()).await;
    }
    let mut follow = elsewhere.stream(id, 10).await.unwrap();
    for n in 11..=30_u64 {
        assert_eq!(next(&mut follow).await, Ok((Some(n), n.to_string())));
    }
    puppet.text("31").await;
    puppet.end().await;
    assert_eq!(rest(&mut follow, 31).await, (vec!["31".to_owned()], State::Done));
    worker.stop().await;
    let mut long_after = there.stream(id, 29).await.unwrap();
    assert_eq!(rest(&mut long_after, 30).await.0, ["30", "31"]);
    for mill in [mill, there, elsewhere] {
        mill.close().await;
    }
}

async fn all_that_was_said_is_kept_when_the_job_ends_however_it_ends(kit: Kit) {
    let mill = kit.open().await;
    let mut ids = Vec::new();
    for how in ["\"done\"", "\"dead\"", "\"panic\""] {
        let job = Enqueue::raw("talk", how).retry(once());
        ids.push(mill.enqueue(job).await.unwrap().id());
    }
    let talk = |how: Payload, cx: Context| async move {
        cx.progress(Progress::of(0, 2000)).await?;
        for n in 0..2000 {
            cx.text(n.to_string()).await?;
        }
        cx.log("the end").await?;
        match how.as_str() {
            "\"dead\"" => Err(Fail::permanent("no")),
            "\"panic\"" => panic!("out of luck"),
            _ => Ok(how),
        }
    };
    drain(mill.worker().handle_raw("talk", settings(), talk)).await.unwrap();
    for (id, state) in ids.into_iter().zip([State::Done, State::Dead, State::Dead]) {
        let mut follow = mill.stream(id, 0).await.unwrap();
        let Ok(Some(Event::Chunk(first))) = follow.next().await else {
            panic!("it said something")
        };
        assert_eq!(first.said, Said::Progress(Progress::of(0, 2000)));
        for n in 0..2000 {
            assert_eq!(next(&mut follow).await, Ok((Some(n + 2), n.to_string())));
        }
        let Ok(Some(Event::Chunk(last))) = follow.next().await else { panic!("it has a log") };
        assert_eq!(last.said, Said::log("the end"));
        assert_eq!(next(&mut follow).await, Err(state));
        let progress = mill.job(id).await.unwrap().unwrap().progress;
        assert_eq!(progress, Some(Progress::of(0, 2000)));
    }
    mill.close().await;
}

async fn numbers_go_on_over_attempts(kit: Kit) {
    let mill = kit.open().await;
    let id = mill.enqueue(Enqueue::raw("puppet", "null").retry(once())).await.unwrap().id();
    let (puppet, worker) = Puppet::start(&mill).await;
    puppet.text("first").await;
    puppet.tell(Order::End(Err(Fail::permanent("no")))).await.unwrap();
    let mut follow = mill.stream(id, 0).await.unwrap();
    assert_eq!(rest(&mut follow, 1).await, (vec!["first".to_owned()], State::Dead));
    assert!(mill.dead().replay_one(id, "ada", None).await.unwrap());
    let mut follow = mill.stream(id, 0).await.unwrap();
    assert_eq!(next(&mut follow).await, Ok((Some(1), "first".to_owned())));
    puppet.text("second").await;
    puppet.end().await;
    assert_eq!(rest(&mut follow, 2).await, (vec!["second".to_owned()], State::Done));
    worker.stop().await;
    mill.close().await;
}

async fn who_is_slow_misses_nothing(kit: Kit) {
    let (mill, there) = (kit.open().await, kit.open().await);
    let id = enqueue(&mill).await;
    let (puppet, worker) = Puppet::start(&mill).await;
    puppet.text("0").await;
    let (mut slow, mut quick) =
        (there.stream(id, 0).await.unwrap(), there.stream(id, 0).await.unwrap());
    assert!(next(&mut slow).await.is_ok());
    assert!(next(&mut quick).await.is_ok());
    // More reads than a seat holds: each chunk is read before the next is said.
    for n in 1..=100_u64 {
        puppet.text(&n.to_string()).await;
        assert_eq!(next(&mut quick).await, Ok((Some(n + 1), n.to_string())));
    }
    puppet.end().await;
    let (texts, state) = rest(&mut slow, 2).await;
    assert_eq!((texts.len(), state), (100, State::Done));
    worker.stop().await;
    mill.close().await;
    there.close().await;
}

async fn many_follow_one_stream(kit: Kit) {
    let mill = kit.open().await;
    let id = enqueue(&mill).await;
    let (puppet, worker) = Puppet::start(&mill).await;
    let followers: Vec<_> = (0..200)
        .map(|_| {
            let mill = mill.clone();
            tokio::spawn(async move { rest(&mut mill.stream(id, 0).await.unwrap(), 1).await })
        })
        .collect();
    for n in 0..50 {
        puppet.text(&n.to_string()).await;
    }
    puppet.end().await;
    for follower in followers {
        let (texts, state) = follower.await.unwrap();
        assert_eq!((texts.len(), state), (50, State::Done));
    }
    worker.stop().await;
    mill.close().await;
}

async fn who_says_to_have_read_more_than_there_is_blinds_nobody(kit: Kit) {
    let mill = kit.open().await;
    let id = enqueue(&mill).await;
    let (puppet, worker) = Puppet::start(&mill).await;
    let followers = async |number: usize| {
        eventually("them to follow", SOON, async || {
            let page = mill.metrics().await;
            page.contains(&format!("tidemill_stream_subscribers {number}\n")).then_some(())
        })
        .await;
    };
    let follow = |after: u64| {
        let mill = mill.clone();
        tokio::spawn(async move {
            let mut follow = mill.stream(id, after).await.unwrap();
            next(&mut follow).await
        })
    };
    let ahead = follow(u64::MAX);
    followers(1).await;
    let behind = follow(0);
    followers(2).await;
    puppet.text("a").await;
    assert_eq!(behind.await.unwrap(), Ok((Some(1), "a".to_owned())));
    puppet.end().await;
    assert_eq!(ahead.await.unwrap(), Err(State::Done));
    worker.stop().await;
    mill.close().await;
}

/// The claim is less than 50 ms on an idle machine; this one may be busy. Who only looked by itself, once a second,
/// would be far above.
async fn a_chunk_reaches_another_node_at_once(kit: Kit) {
    let (mill, there) = (kit.open().await, kit.open().await);
    let id = enqueue(&mill).await;
    let (puppet, worker) = Puppet::start(&mill).await;
    let mut follow = there.stream(id, 0).await.unwrap();
    puppet.text("0").await;
    assert!(next(&mut follow).await.is_ok());
    let mut took = Vec::new();
    for n in 1..=40 {
        let said = Instant::now();
        puppet.text(&n.to_string()).await;
        assert!(next(&mut follow).await.is_ok());
        took.push(said.elapsed());
    }
    took.sort();
    println!("a chunk took {:?} at the median, {:?} at most", took[20], took[39]);
    assert!(took[20] < Duration::from_millis(250), "{took:?}");
    puppet.end().await;
    worker.stop().await;
    mill.close().await;
    there.close().await;
}

async fn what_is_ephemeral_reaches_who_listens_alone(kit: Kit) {
    let mill = kit.open().await;
    // Another process of SQLite has no channel for it.
    let there = if kit.url.starts_with("sqlite") { mill.clone() } else { kit.open().await };
    let id = enqueue(&mill).await;
    let (puppet, worker) = Puppet::start(&mill).await;
    puppet.tell(Order::Ephemeral("nobody listens".to_owned())).await.unwrap();
    let mut follow = there.stream(id, 0).await.unwrap();
    let (passed_on, is_passed_on) = watch::channel(false);
    let listening = tokio::spawn(async move {
        let mut heard = Vec::new();
        while let Ok((number, text)) = next(&mut follow).await {
            if number.is_none() {
                passed_on.send_replace(true);
            }
            heard.push((number, text));
        }
        heard
    });
    puppet.text("kept").await;
    // Until the word of a listener has come around, nothing is passed on.
    let mut said = 0;
    eventually("something to be passed on", SOON, async || {
        puppet.tell(Order::Ephemeral(said.to_string())).await.unwrap();
        said += 1;
        is_passed_on.borrow().then_some(())
    })
    .await;
    puppet.text("last").await;
    puppet.end().await;
    let heard = listening.await.unwrap();
    let kept: Vec<_> = heard.iter().filter(|(number, _)| number.is_some()).cloned().collect();
    assert_eq!(kept, [(Some(1), "kept".to_owned()), (Some(2), "last".to_owned())]);
    let ephemeral: Vec<u32> =
        heard.iter().filter(|(n, _)| n.is_none()).map(|(_, text)| text.parse().unwrap()).collect();
    assert!(!ephemeral.is_empty() && ephemeral.is_sorted(), "{ephemeral:?}");
    let mut after = there.stream(id, 0).await.unwrap();
    assert_eq!(rest(&mut after, 1).await.0, ["kept", "last"]);
    worker.stop().await;
    mill.close().await;
    there.close().await;
}

async fn too_much_is_refused_and_what_fits_is_kept(kit: Kit) {
    let limits =
        Limits { stream_chunk_bytes_max: 1000, stream_bytes_max: 5000, ..Limits::default() };
    let mill = Tidemill::builder().limits(limits).open(&kit.url).await.unwrap();
    let id = enqueue(&mill).await;
    let talk = |_: Payload, cx: Context| async move {
        let error = cx.text("x".repeat(1000)).await.map_err(|error| error.code());
        assert_eq!(error, Err("chunk_too_large"));
        let mut said = 0;
        let full = loop {
            match cx.text("x".repeat(900)).await {
                Ok(()) => said += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full.code(), "stream_full");
        assert!(said >= 5, "{said}");
        cx.ephemeral(Said::text("still heard")).await?;
        Ok(Payload::null())
    };
    let done = drain(mill.worker().handle_raw("puppet", settings(), talk)).await.unwrap();
    assert_eq!(done.done, 1);
    let (texts, _) = rest(&mut mill.stream(id, 0).await.unwrap(), 1).await;
    assert_eq!(texts.len(), 5, "as many as fit");
    mill.close().await;
}

async fn an_attempt_that_lost_its_lease_says_no_more(kit: Kit) {
    let (mill, there) = (kit.open().await, kit.open().await);
    let id = enqueue(&mill).await;
    let (puppet, worker) = Puppet::start(&mill).await;
    puppet.text("mine").await;
    let mut follow = there.stream(id, 0).await.unwrap();
    assert!(next(&mut follow).await.is_ok());
    let lost = mill.workers().await.unwrap()[0].id;
    mill.store().deregister(lost).await.unwrap();
    let refused = loop {
        if let Err(error) = puppet.tell(Order::Text("not mine".to_owned())).await {
            break error;
        }
    };
    assert_eq!(refused.code(), "lease_lost");
    assert!(mill.counts().stale >= 1);
    puppet.end().await;
    // Another attempt, of the worker that came in its place.
    puppet.text("mine again").await;
    assert_eq!(next(&mut follow).await, Ok((Some(2), "mine again".to_owned())));
    puppet.end().await;
    assert_eq!(rest(&mut follow, 3).await, (Vec::new(), State::Done));
    worker.stop().await;
    mill.close().await;
    there.close().await;
}

async fn a_stream_of_an_unknown_job_is_refused(kit: Kit) {
    let mill = kit.open().await;
    assert_eq!(mill.stream(JobId::new(), 0).await.unwrap_err().code(), "job_unknown");
    mill.close().await;
}

async fn one_who_says_more_than_is_written_waits(kit: Kit) {
    let limits = Limits { stream_bytes_max: 1 << 30, ..Limits::default() };
    let mill = Tidemill::builder().limits(limits).open(&kit.url).await.unwrap();
    let id = enqueue(&mill).await;
    let large = Arc::new("x".repeat(60_000));
    let talk = move |_: Payload, cx: Context| {
        let large = Arc::clone(&large);
        async move {
            // Fifty times what may be unwritten.
            for _ in 0..200 {
                cx.text(large.as_str()).await?;
            }
            Ok(Payload::null())
        }
    };
    drain(mill.worker().handle_raw("puppet", settings(), talk)).await.unwrap();
    let (texts, state) = rest(&mut mill.stream(id, 0).await.unwrap(), 1).await;
    assert_eq!((texts.len(), state), (200, State::Done));
    mill.close().await;
}

/// A row of a stream as the database has it.
async fn write_row(kit: &Kit, id: JobId, number: u64, chunks: &str) {
    kit.execute(&row(kit, id, number, chunks)).await;
}

fn row(kit: &Kit, id: JobId, number: u64, chunks: &str) -> String {
    let id = id.0.simple();
    let (job, at) = if kit.url.starts_with("sqlite:") {
        (format!("x'{id}'"), "0")
    } else {
        (format!("'{id}'"), "now()")
    };
    format!(
        "insert into tidemill_stream (job, first, last, bytes, at, sent, chunks) \
         values ({job}, {number}, {number}, {number}, {at}, {job}, '{chunks}');"
    )
}

async fn a_row_that_cannot_be_read_blinds_those_alone_who_follow_it(kit: Kit) {
    let mill = kit.open().await;
    let spoiled = mill.enqueue(Enqueue::raw("mute", "null").queue("other")).await.unwrap().id();
    let good = serde_json::to_string(&[Said::text("a")]).unwrap();
    write_row(&kit, spoiled, 1, &good).await;
    let mut blind = mill.stream(spoiled, 0).await.unwrap();
    assert_eq!(next(&mut blind).await, Ok((Some(1), "a".to_owned())));
    let id = enqueue(&mill).await;
    let mut follow = mill.stream(id, 0).await.unwrap();
    let (puppet, worker) = Puppet::start(&mill).await;
    puppet.text("a").await;
    assert_eq!(next(&mut follow).await, Ok((Some(1), "a".to_owned())));
    // Both have read all there is: what is new the one reader of this process tells them.
    write_row(&kit, spoiled, 2, "[").await;
    let why = tokio::time::timeout(SOON, blind.next()).await.expect("it hears why").unwrap_err();
    assert_eq!(why.code(), "store_refused");
    let mut blind = mill.stream(spoiled, 2).await.unwrap();
    write_row(&kit, spoiled, 3, &good).await;
    assert_eq!(next(&mut blind).await, Ok((Some(3), "a".to_owned())), "it goes on behind it");
    puppet.text("b").await;
    assert_eq!(next(&mut follow).await, Ok((Some(2), "b".to_owned())));
    puppet.end().await;
    assert_eq!(rest(&mut follow, 3).await, (vec![], State::Done));
    worker.stop().await;
    mill.close().await;
}

async fn rows_that_cannot_be_read_are_told_to_who_follows_them_also_where_there_are_no_others(
    kit: Kit,
) {
    let mill = kit.open().await;
    let mut blind = two_mutes(&kit, &mill).await;
    // Both at once, lest one is sent away while the other can be read.
    let rows: String = blind.iter().map(|(id, _)| row(&kit, *id, 2, "[")).collect();
    kit.execute(&format!("begin; {rows} commit")).await;
    for (id, follow) in &mut blind {
        let why = tokio::time::timeout(SOON, follow.next()).await.expect("it hears why");
        assert_eq!(why.unwrap_err().code(), "store_refused", "{id}");
    }
    mill.close().await;
}

/// Two streams of jobs that nobody runs, of which all has been read that there is.
async fn two_mutes(kit: &Kit, mill: &Tidemill) -> Vec<(JobId, Follow)> {
    let good = serde_json::to_string(&[Said::text("a")]).unwrap();
    let mut follows = Vec::new();
    for _ in 0..2 {
        let id = mill.enqueue(Enqueue::raw("mute", "null").queue("other")).await.unwrap().id();
        write_row(kit, id, 1, &good).await;
        let mut follow = mill.stream(id, 0).await.unwrap();
        assert_eq!(next(&mut follow).await, Ok((Some(1), "a".to_owned())));
        follows.push((id, follow));
    }
    follows
}

/// Whatever is asked for of streams is refused, and counted.
const REFUSE: &str = "
    create sequence asked;
    alter table tidemill.stream rename to kept;
    create function tidemill.refuse() returns setof tidemill.kept language plpgsql as $$
    begin
        perform nextval('asked');
        raise exception 'not now';
    end $$;
    create view tidemill.stream as select * from tidemill.refuse()";

const NO_MORE: &str = "drop view tidemill.stream; drop function tidemill.refuse();
    alter table tidemill.kept rename to stream";

#[tokio::test]
async fn a_database_that_refuses_for_a_while_ends_no_stream() {
    let kit = Kit::postgres();
    let mill = kit.open().await;
    let mut follows = two_mutes(&kit, &mill).await;
    let client = kit.client().await;
    client.batch_execute(REFUSE).await.unwrap();
    mill.store().hint(Hint::Stream { id: follows[0].0 });
    let heard = async {
        let [(_, one), (_, other)] = follows.as_mut_slice() else { panic!("two follow") };
        tokio::select! { event = one.next() => event, event = other.next() => event }
    };
    let refused = eventually("the store to refuse several times", SOON, async || {
        let asked = client.query_one("select last_value from asked", &[]).await.unwrap();
        (asked.get::<_, i64>(0) >= 5).then_some(())
    });
    tokio::select! {
        () = refused => {}
        event = heard => panic!("nobody is told anything: {event:?}"),
    }
    client.batch_execute(NO_MORE).await.unwrap();
    let good = serde_json::to_string(&[Said::text("b")]).unwrap();
    for (id, follow) in &mut follows {
        write_row(&kit, *id, 2, &good).await;
        assert_eq!(next(follow).await, Ok((Some(2), "b".to_owned())));
    }
    mill.close().await;
}
