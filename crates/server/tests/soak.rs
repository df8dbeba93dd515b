//! Many idle streams: the server still answers, does nothing for them, and a chunk reaches all.
//!
//! An ordinary run opens a few hundred; `cargo xtask soak` opens ten thousand. Client and server are processes of their
//! own, as each of them may open only so many sockets.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use tidemill::{Context, Enqueue, Fail, JobId, Payload, Signal, Tidemill};
use tidemill_server::{Server, Settings};
use tidemill_testkit::Process;
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const URL: &str = "TIDEMILL_SOAK_URL";
const STREAMS: &str = "TIDEMILL_SOAK_STREAMS";
const STREAMS_FEW: usize = 300;
/// Connections that are opened at once.
const OPENING: usize = 64;
const HEARTBEAT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_mins(2);
/// What an idle connection may cost the server: its sockets' state, a task, and its place among those who follow.
const CONNECTION_KB_MAX: u64 = 100;

/// The server: it says where it listens, and serves until it is killed.
#[test]
fn role() {
    let Ok(url) = std::env::var(URL) else { return };
    more_files();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&url).await.unwrap();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = Settings { listen, heartbeat: HEARTBEAT, ..Settings::default() };
        let server = Server::start(mill.clone(), settings).await.unwrap();
        let handled = tidemill::Settings::default();
        let _worker = mill.worker().handle_raw("wait", handled, wait).start().await.unwrap();
        println!("\nserves {}", server.address());
        std::future::pending::<()>().await;
    });
}

/// Waits for a word, without holding anything, and says one.
async fn wait(_: Payload, cx: Context) -> Result<Payload, Fail> {
    let word: String = cx.signal("word").await?;
    cx.text(word).await?;
    Ok(Payload::null())
}

fn more_files() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}

#[test]
fn idle_streams_cost_little_on_sqlite() {
    let (_folder, url) = fresh_sqlite_url();
    soak(&url);
}

#[test]
fn idle_streams_cost_little_on_postgres() {
    soak(&fresh_postgres_url());
}

fn soak(url: &str) {
    more_files();
    let streams = std::env::var(STREAMS).map_or(STREAMS_FEW, |number| number.parse().unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["role", "--exact", "--nocapture"]).env(URL, url).env("TIDEMILL_LOG", "error");
    let mut server = Process::spawn(&mut command).unwrap();
    let line = server.wait_for_line("serves ", PATIENCE).unwrap();
    let address = line.split_once("serves ").unwrap().1.trim().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(follow(url, address, server.id(), streams));
    server.kill_9().unwrap();
}

async fn follow(url: &str, address: SocketAddr, process: u32, streams: usize) {
    let mill = Tidemill::open(url).await.unwrap();
    // Ten follow each job, so that there are many of both.
    let jobs = (0..streams.div_ceil(10)).map(|_| Enqueue::raw("wait", "null"));
    let receipts = mill.enqueue_many(jobs).await.unwrap();
    let ids: Vec<JobId> = receipts.iter().map(tidemill::Receipt::id).collect();
    let before_kb = resident_kb(process);
    let opened = Instant::now();
    let mut open: Vec<Stream> = Vec::with_capacity(streams);
    while open.len() < streams {
        let number = OPENING.min(streams - open.len());
        let ids = ids.iter().cycle().skip(open.len()).take(number);
        let opening: JoinSet<Stream> = ids.map(|id| Stream::open(address, *id)).collect();
        open.extend(opening.join_all().await);
    }
    let took = opened.elapsed();
    let kb = resident_kb(process).saturating_sub(before_kb) / streams as u64;
    println!("{streams} streams of {} jobs were opened in {took:?}; {kb} KiB each", ids.len());
    assert!(kb <= CONNECTION_KB_MAX, "{kb} KiB for a connection that does nothing");
    // The last one: no heartbeats wait there to be read.
    idle(open.last_mut().unwrap(), process).await;
    let asked = Instant::now();
    assert_eq!(get(address, "/v1/jobs?limit=1").await["jobs"].as_array().unwrap().len(), 1);
    println!("a request is answered in {:?}", asked.elapsed());
    let said = Instant::now();
    for id in &ids {
        mill.signal(*id, Signal::new("word", "now")).await.unwrap();
    }
    let signalled = said.elapsed();
    let hearing: JoinSet<()> = open.into_iter().map(Stream::hear_out).collect();
    hearing.join_all().await;
    println!(
        "{} signals took {signalled:?}; all heard the word, and the end, after {:?}",
        ids.len(),
        said.elapsed()
    );
    mill.close().await;
}

/// What the server does between two heartbeats.
async fn idle(stream: &mut Stream, process: u32) {
    stream.until(|line| line.starts_with(':')).await;
    let (began, before) = (Instant::now(), cpu_ticks(process));
    stream.until(|line| line.starts_with(':')).await;
    let ticks = cpu_ticks(process) - before;
    println!("idle, it is busy for {} ms of {:?}", ticks * 10, began.elapsed());
}

/// A stream that somebody follows.
struct Stream(BufReader<TcpStream>);

impl Stream {
    async fn open(address: SocketAddr, id: JobId) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /v1/jobs/{id}/stream HTTP/1.1\r\nhost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut stream = Self(BufReader::with_capacity(512, socket));
        assert_eq!(stream.line().await, "HTTP/1.1 200 OK");
        stream.until(|line| line.starts_with("retry:")).await;
        stream
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_line(&mut line)).await;
        assert!(read.expect("a line comes").unwrap() > 0, "it goes on");
        line.trim_end().to_owned()
    }

    async fn until(&mut self, is_it: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.line().await;
            if is_it(&line) {
                return line;
            }
        }
    }

    /// Hears the word, and the end.
    async fn hear_out(mut self) {
        let data = self.until(|line| line.starts_with("data:")).await;
        assert!(data.contains(r#""number":1"#) && data.contains(r#""text":"now""#), "{data}");
        let data = self.until(|line| line.starts_with("data:")).await;
        assert!(data.contains(r#""state":"done""#), "{data}");
    }
}

async fn get(address: SocketAddr, path: &str) -> Value {
    let response = reqwest::get(format!("http://{address}{path}")).await.unwrap();
    response.json().await.unwrap_or(json!(null))
}

fn resident_kb(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Time on a processor, in hundredths of a second.
fn cpu_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}
