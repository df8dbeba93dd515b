//! Streams: numbered without a gap, written under a lease alone, bounded, and gone with their job.

use tidemill_core::stream::{Chunk, Progress, Said};
use tidemill_core::{JobId, Token, WorkerId};
use tidemill_store::stream::{PAGE_BYTES, StreamAnswer, StreamItem, StreamPage};
use tidemill_store::{Claim, Hint};
use uuid::Uuid;

use super::kit::*;

over_both_stores!(
    chunks_are_numbered_in_their_order_over_all_attempts,
    a_stale_token_adds_nothing,
    a_token_of_another_job_adds_nothing,
    what_is_sent_again_is_written_once,
    a_stream_has_no_more_bytes_than_it_may,
    two_writers_of_one_stream_leave_no_gap,
    a_page_ends_where_its_bytes_do_and_the_next_begins_there,
    many_streams_are_written_and_read_together,
    what_was_said_is_read_as_it_was_said,
    a_stream_is_forgotten_with_its_job,
    the_last_progress_is_seen_with_the_job,
    only_those_who_follow_are_told,
    who_follows_after_the_write_is_told_of_it,
    what_is_ephemeral_reaches_who_listens_and_is_not_kept,
);

const BYTES_MAX: u64 = 1_000_000;

fn append(claim: &Claim, said: Vec<Said>) -> StreamItem {
    let token = claim.token.expect("a claim with jobs has a token");
    said_by(claim.jobs[0].job.id, token, said)
}

fn said_by(job: JobId, token: Token, said: Vec<Said>) -> StreamItem {
    StreamItem { job, token, sent: Uuid::now_v7(), said, ephemeral: Vec::new() }
}

fn texts(from: u32, to: u32) -> Vec<Said> {
    (from..=to).map(|n| Said::text(n.to_string())).collect()
}

async fn add(kit: &Kit, worker: WorkerId, item: StreamItem) -> StreamAnswer {
    kit.store.append_stream(worker, vec![item], BYTES_MAX).await.unwrap()[0]
}

async fn after(kit: &Kit, job: JobId, after: u64) -> Vec<Chunk> {
    page(kit, job, after).await.chunks
}

async fn page(kit: &Kit, job: JobId, after: u64) -> StreamPage {
    kit.store.streams_after(vec![(job, after)]).await.unwrap().pop().unwrap()
}

/// Numbers, and what was said under them.
async fn read(kit: &Kit, job: JobId, from: u64) -> Vec<(u64, String)> {
    let chunk = |chunk: Chunk| match chunk.said {
        Said::Text { text } => (chunk.number.unwrap(), text),
        other => panic!("{other:?}"),
    };
    after(kit, job, from).await.into_iter().map(chunk).collect()
}

fn numbered(from: u64, to: u64) -> Vec<(u64, String)> {
    (from..=to).map(|n| (n, n.to_string())).collect()
}

async fn chunks_are_numbered_in_their_order_over_all_attempts(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    assert!(after(kit, id, 0).await.is_empty(), "nothing was said");
    let claim = kit.take_one(worker).await;
    let answer = add(kit, worker, append(&claim, texts(1, 3))).await;
    assert_eq!(answer, StreamAnswer::Kept { last: 3 });
    assert_eq!(add(kit, worker, append(&claim, texts(4, 4))).await, StreamAnswer::Kept { last: 4 });
    kit.settle(worker, &claim, retry(SECOND, 1)).await;
    kit.clock.advance(SECOND);
    let claim = kit.take_one(worker).await;
    assert_eq!(add(kit, worker, append(&claim, texts(5, 9))).await, StreamAnswer::Kept { last: 9 });
    for from in 0..=9 {
        assert_eq!(read(kit, id, from).await, numbered(from + 1, 9), "after {from}");
    }
    assert!(after(kit, id, 100).await.is_empty());
    kit.settle(worker, &claim, done()).await;
    assert_eq!(read(kit, id, 2).await, numbered(3, 9), "long after, while it is kept");
}

async fn a_stale_token_adds_nothing(kit: &Kit) {
    let (lost, worker) = (kit.worker().await, kit.worker().await);
    let id = kit.put(job("k")).await;
    let old = kit.take_one(lost).await;
    assert_eq!(add(kit, lost, append(&old, texts(1, 1))).await, StreamAnswer::Kept { last: 1 });
    assert_eq!(
        add(kit, worker, append(&old, texts(2, 2))).await,
        StreamAnswer::Stale,
        "not its own"
    );
    kit.store.deregister(lost).await.unwrap();
    let new = kit.take_one(worker).await;
    let items = vec![append(&old, texts(7, 7)), append(&new, texts(2, 2))];
    let answers = kit.store.append_stream(worker, items, BYTES_MAX).await.unwrap();
    assert_eq!(answers, [StreamAnswer::Stale, StreamAnswer::Kept { last: 2 }]);
    assert_eq!(add(kit, lost, append(&old, texts(8, 8))).await, StreamAnswer::Stale);
    kit.settle(worker, &new, done()).await;
    assert_eq!(
        add(kit, worker, append(&new, texts(9, 9))).await,
        StreamAnswer::Stale,
        "it has ended"
    );
    assert_eq!(read(kit, id, 0).await, numbered(1, 2));
}

async fn a_token_of_another_job_adds_nothing(kit: &Kit) {
    let worker = kit.worker().await;
    kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let other = kit.put(job("k")).await;
    let item = said_by(other, claim.token.unwrap(), texts(1, 1));
    assert_eq!(add(kit, worker, item).await, StreamAnswer::Stale);
    assert!(after(kit, other, 0).await.is_empty());
}

async fn what_is_sent_again_is_written_once(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let item = append(&claim, texts(1, 2));
    for _ in 0..3 {
        assert_eq!(add(kit, worker, item.clone()).await, StreamAnswer::Kept { last: 2 });
    }
    assert_eq!(read(kit, id, 0).await, numbered(1, 2));
}

async fn a_stream_has_no_more_bytes_than_it_may(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let large = || append(&claim, vec![Said::text("x".repeat(400_000))]);
    assert_eq!(add(kit, worker, large()).await, StreamAnswer::Kept { last: 1 });
    assert_eq!(add(kit, worker, large()).await, StreamAnswer::Kept { last: 2 });
    let StreamAnswer::Full { bytes_left } = add(kit, worker, large()).await else {
        panic!("it is full")
    };
    assert!((100_000..200_000).contains(&bytes_left), "{bytes_left}");
    assert_eq!(add(kit, worker, append(&claim, texts(3, 3))).await, StreamAnswer::Kept { last: 3 });
    let all = kit.store.append_stream(worker, vec![append(&claim, texts(4, 4))], 0).await.unwrap();
    assert_eq!(all, [StreamAnswer::Full { bytes_left: 0 }], "the limit may have become smaller");
    assert_eq!(after(kit, id, 2).await.len(), 1);
}

async fn two_writers_of_one_stream_leave_no_gap(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let writers = (0..4).map(|_| {
        let (store, claim) = (kit.store.clone(), claim.clone());
        tokio::spawn(async move {
            for _ in 0..25 {
                let items = vec![append(&claim, texts(1, 2)), append(&claim, texts(3, 3))];
                let answers = store.append_stream(worker, items, BYTES_MAX).await.unwrap();
                assert!(answers.iter().all(|answer| matches!(answer, StreamAnswer::Kept { .. })));
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let numbers: Vec<u64> = read(kit, id, 0).await.into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, (1..=300).collect::<Vec<_>>());
}

async fn a_page_ends_where_its_bytes_do_and_the_next_begins_there(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let large = Said::text("x".repeat(PAGE_BYTES as usize / 3));
    // One that is larger than a page stands between small ones.
    for said in [vec![large.clone()], texts(2, 4), vec![large; 5], texts(10, 10), texts(11, 11)] {
        add(kit, worker, append(&claim, said)).await;
    }
    let (mut numbers, mut from, mut pages) = (Vec::new(), 0, 0);
    loop {
        let page = page(kit, id, from).await;
        from = page.chunks.last().unwrap().number.unwrap();
        numbers.extend(page.chunks.iter().map(|chunk| chunk.number.unwrap()));
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
    assert!(pages > 1, "all of it is more than a page");
    assert_eq!(after(kit, id, 6).await[0].number, Some(7), "also from within a row");
}

async fn many_streams_are_written_and_read_together(kit: &Kit) {
    let worker = kit.worker().await;
    let mut jobs = Vec::new();
    for _ in 0..20 {
        jobs.push(kit.put(job("k")).await);
    }
    let claim = kit.take(worker, 20).await;
    let token = claim.token.unwrap();
    let items = jobs.iter().enumerate().map(|(n, id)| said_by(*id, token, texts(1, n as u32 + 1)));
    let answers = kit.store.append_stream(worker, items.collect(), BYTES_MAX).await.unwrap();
    let asked = jobs.iter().rev().map(|id| (*id, 1)).chain([(JobId::new(), 0)]).collect();
    let read = kit.store.streams_after(asked).await.unwrap();
    assert_eq!(read.len(), 21);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(*answer, StreamAnswer::Kept { last: n as u64 + 1 });
        assert_eq!(read[19 - n].chunks.len(), n);
    }
    assert!(read[20].chunks.is_empty());
}

async fn what_was_said_is_read_as_it_was_said(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let said = vec![
        Said::text("a\0b \u{1f980} \"\\"),
        Said::log(""),
        Progress::of(1, 2).status("s").tool("t").message("m").into(),
        Progress::default().into(),
    ];
    add(kit, worker, append(&claim, said.clone())).await;
    let read = after(kit, id, 0).await;
    assert!(read.iter().all(|chunk| chunk.at == kit.clock.now()));
    assert_eq!(read.into_iter().map(|chunk| chunk.said).collect::<Vec<_>>(), said);
}

async fn a_stream_is_forgotten_with_its_job(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    add(kit, worker, append(&claim, texts(1, 1))).await;
    assert_eq!(kit.store.purge(&[id]).await.unwrap(), 0, "it has not finished");
    assert_eq!(after(kit, id, 0).await.len(), 1);
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.store.purge(&[id]).await.unwrap(), 1);
    assert!(after(kit, id, 0).await.is_empty());
}

async fn the_last_progress_is_seen_with_the_job(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    assert_eq!(kit.view(id).await.progress, None);
    let claim = kit.take_one(worker).await;
    for said in [
        vec![Progress::of(1, 9).into(), Progress::of(2, 9).into(), Said::log("x")],
        vec![Said::text("y")],
    ] {
        add(kit, worker, append(&claim, said)).await;
    }
    assert_eq!(kit.view(id).await.progress, Some(Progress::of(2, 9)));
    kit.settle(worker, &claim, dead("no")).await;
    assert_eq!(kit.view(id).await.progress, Some(Progress::of(2, 9)), "also when it is over");
}

async fn only_those_who_follow_are_told(kit: &Kit) {
    let worker = kit.worker().await;
    let (id, other) = (kit.put(job("k")).await, kit.put(job("k")).await);
    let claim = kit.take(worker, 2).await;
    let token = claim.token.unwrap();
    let mut heard = kit.store.wake().listen();
    kit.store.hint(Hint::Follow { ids: vec![other] });
    let both = vec![said_by(id, token, texts(1, 1)), said_by(other, token, texts(1, 1))];
    kit.store.append_stream(worker, both, BYTES_MAX).await.unwrap();
    loop {
        match heard.recv().await.unwrap() {
            Hint::Stream { id: told } if told == other => break,
            Hint::Stream { id } => panic!("nobody follows {id}"),
            _ => {}
        }
    }
    kit.settle(worker, &claim, done()).await;
    kit.store.settle(worker, vec![item(&claim, 1, done())]).await.unwrap();
    hears(&mut heard, |hint| *hint == Hint::Finished { id: claim.jobs[1].job.id }).await;
}

async fn who_follows_after_the_write_is_told_of_it(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let mut heard = kit.store.wake().listen();
    add(kit, worker, append(&claim, texts(1, 1))).await;
    kit.store.hint(Hint::Follow { ids: vec![id] });
    hears(&mut heard, |hint| *hint == Hint::Stream { id }).await;
}

async fn what_is_ephemeral_reaches_who_listens_and_is_not_kept(kit: &Kit) {
    let worker = kit.worker().await;
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    let mut heard = kit.store.wake().listen();
    let whisper = |text: &str, said| StreamItem {
        ephemeral: vec![Said::text(text), Said::text(text)],
        ..append(&claim, said)
    };
    let answer = add(kit, worker, whisper("unheard", Vec::new())).await;
    assert!(matches!(answer, StreamAnswer::Kept { .. }));
    kit.store.hint(Hint::Follow { ids: vec![id] });
    assert_eq!(add(kit, worker, whisper("x", texts(1, 1))).await, StreamAnswer::Kept { last: 1 });
    assert_eq!(add(kit, worker, whisper("y", Vec::new())).await, StreamAnswer::Kept { last: 1 });
    let stale =
        StreamItem { token: Token(claim.token.unwrap().0 + 1), ..whisper("stale", Vec::new()) };
    assert_eq!(add(kit, worker, stale).await, StreamAnswer::Stale);
    add(kit, worker, whisper("z", Vec::new())).await;
    let mut told = Vec::new();
    while told.len() < 6 {
        if let Hint::Ephemeral { chunk, .. } = heard.recv().await.unwrap() {
            assert_eq!(chunk.number, None);
            told.push(chunk.said);
        }
    }
    assert_eq!(told, ["x", "x", "y", "y", "z", "z"].map(Said::text));
    assert_eq!(read(kit, id, 0).await, numbered(1, 1));
}
