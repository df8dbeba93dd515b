//! The live output of a job, as server-sent events; resumed by number when the connection breaks.

use std::collections::VecDeque;
use std::time::Duration;

use futures::Stream;
use http::header::{ACCEPT, HeaderName};
use http::{Method, StatusCode};
use tidemill::{Chunk, End, Event, JobId};
use tokio::time::Instant;

use crate::error::Result;
use crate::http::{Answer, Client, path};

/// A server says something every few seconds; one that is silent for so long is gone.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Between a broken connection and the next, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// So often in a row it is tried in vain: nothing is told, or the server cuts the connection as soon as it is made.
const TRIES_MAX: u32 = 10;
/// A connection that held for so long was not in vain, though the job said nothing meanwhile.
const HELD_MIN: Duration = Duration::from_secs(10);
/// A line has this many bytes at most; a chunk has far fewer.
const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Follows the stream of one job; see [`Client::stream`].
#[derive(Debug)]
pub struct Follow {
    client: Client,
    id: JobId,
    seen: u64,
    answer: Option<Answer>,
    /// Since when it is connected.
    since: Option<Instant>,
    /// Between a broken connection and the next, at first.
    pause_min: Duration,
    lines: Lines,
    ready: VecDeque<Event>,
    told: bool,
}

impl Client {
    /// Follows the stream of a job: first the chunks after this number that are kept (0: all), then what comes, and
    /// at last how the job ended. When the connection breaks it is made again, and nothing is missed.
    pub async fn stream(&self, id: JobId, after: u64) -> Result<Follow> {
        let mut follow = Follow {
            client: self.clone(),
            id,
            seen: after,
            answer: None,
            since: None,
            pause_min: PAUSE_MIN,
            lines: Lines::default(),
            ready: VecDeque::new(),
            told: false,
        };
        follow.connect().await?;
        Ok(follow)
    }
}

impl Follow {
    /// What comes next; `None` after the end was told.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        let mut tries = 0;
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.told = matches!(event, Event::End(_));
                if let Event::Chunk(Chunk { number: Some(number), .. }) = &event {
                    self.seen = *number;
                }
                return Ok(Some(event));
            }
            if self.told {
                return Ok(None);
            }
            if !self.read().await? {
                if self.since.take().is_some_and(|since| since.elapsed() >= HELD_MIN) {
                    tries = 0;
                }
                self.again(&mut tries).await?;
            }
        }
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event>> + Send {
        futures::stream::try_unfold(self, |mut follow| async move {
            Ok(follow.next().await?.map(|event| (event, follow)))
        })
    }

    /// The number of the last chunk that was told.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Reads on; `false`: the connection is no more.
    async fn read(&mut self) -> Result<bool> {
        let Some(answer) = &mut self.answer else { return Ok(false) };
        let read = tokio::time::timeout(SILENCE_MAX, answer.chunk()).await;
        let Ok(Ok(Some(bytes))) = read else {
            // It has ended, broken, or gone silent.
            self.answer = None;
            return Ok(false);
        };
        let events = self.lines.read(&bytes);
        self.ready.extend(events.map_err(|reason| self.client.unreadable(reason))?);
        Ok(true)
    }

    /// Connects again, after a moment; an error when that was in vain too often, or is refused.
    async fn again(&mut self, tries: &mut u32) -> Result<()> {
        if *tries == TRIES_MAX {
            return Err(self
                .client
                .unreachable("its stream breaks off, again and again".to_owned()));
        }
        let pause = self.pause_min.saturating_mul(1 << (*tries).min(10)).min(PAUSE_MAX);
        tokio::time::sleep(pause).await;
        *tries += 1;
        match self.connect().await {
            Err(error) if error.is_temporary() && *tries < TRIES_MAX => Ok(()),
            connected => connected,
        }
    }

    async fn connect(&mut self) -> Result<()> {
        self.lines = Lines::default();
        let place = path(["jobs", &self.id.to_string(), "stream"]);
        let request = self.client.lasting(Method::GET, &place);
        let request = request
            .header(ACCEPT, "text/event-stream")
            .header(HeaderName::from_static("last-event-id"), &self.seen.to_string());
        let answered = tokio::time::timeout(SILENCE_MAX, self.client.answer(request)).await;
        let answer = answered.map_err(|_| self.client.silent())??;
        if answer.status() == StatusCode::NO_CONTENT {
            self.told = true;
        } else {
            self.answer = Some(answer);
            self.since = Some(Instant::now());
        }
        Ok(())
    }
}

/// What has come of an event, until it is whole.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    event: String,
    data: String,
}

impl Lines {
    /// The events that these bytes make whole.
    fn read(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Event>, String> {
        let mut events = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    let line = String::from_utf8(line).map_err(|error| error.to_string())?;
                    events.extend(self.take(line.trim_end_matches('\r'))?);
                }
                _ if self.line.len() >= LINE_BYTES_MAX => {
                    return Err("a line of its stream does not end".to_owned());
                }
                byte => self.line.push(*byte),
            }
        }
        Ok(events)
    }

    fn take(&mut self, line: &str) -> std::result::Result<Option<Event>, String> {
        if line.is_empty() {
            let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
            return if data.is_empty() { Ok(None) } else { told(&event, &data).map(Some) };
        }
        // A line that begins with a colon is a heartbeat, and other fields say nothing new.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
        Ok(None)
    }
}

fn told(event: &str, data: &str) -> std::result::Result<Event, String> {
    let read = match event {
        "end" => serde_json::from_str::<End>(data).map(Event::End),
        _ => serde_json::from_str::<Chunk>(data).map(Event::Chunk),
    };
    read.map_err(|error| format!("an event of its stream is none: {error}"))
}

#[cfg(test)]
mod tests {
    use tidemill::{Said, State};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
                        retry: 1000\n\n";

    /// A server that greets, says this to the one who comes for the nth time, and hangs up; and one who follows it.
    async fn hanging_up(say: impl Fn(u32) -> String + Send + 'static) -> Follow {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for n in 1.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut heard = Vec::new();
                while !heard.ends_with(b"\r\n\r\n") {
                    heard.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(format!("{HEAD}{}", say(n)).as_bytes()).await.unwrap();
            }
        });
        let client = Client::new(&url).unwrap();
        let mut follow = client.stream(JobId::new(), 0).await.unwrap();
        follow.pause_min = Duration::ZERO;
        follow
    }

    #[tokio::test]
    async fn a_stream_that_always_breaks_off_is_an_error() {
        let (count, counted) = std::sync::mpsc::channel();
        let greet = move |n| {
            count.send(n).unwrap();
            String::new()
        };
        let mut follow = hanging_up(greet).await;
        let error = follow.next().await.unwrap_err();
        assert_eq!(error.code(), "server_unreachable", "{error}");
        assert_eq!(counted.try_iter().last(), Some(1 + TRIES_MAX));
    }

    #[tokio::test]
    async fn a_stream_that_breaks_off_after_each_chunk_is_followed_to_its_end() {
        let chunks = TRIES_MAX * 2;
        let mut follow = hanging_up(move |n| match n {
            n if n > chunks => {
                "event: end\ndata: {\"event\":\"end\",\"state\":\"done\"}\n\n".to_owned()
            }
            n => format!(
                "event: text\nid: {n}\ndata: {{\"number\":{n},\"at\":\"2026-01-01T00:00:00Z\",\
                 \"event\":\"text\",\"text\":\"x\"}}\n\n"
            ),
        })
        .await;
        let mut told = 0;
        while let Some(event) = follow.next().await.unwrap() {
            told += u32::from(matches!(event, Event::Chunk(_)));
        }
        assert_eq!((told, follow.seen()), (chunks, u64::from(chunks)));
    }

    #[test]
    fn events_are_read_whatever_pieces_they_come_in() {
        let sent = "retry: 1000\n\n: beat\n\nevent: text\nid: 1\n\
                    data: {\"number\":1,\"at\":\"2026-01-01T00:00:00Z\",\"event\":\"text\",\"text\":\"hä\"}\r\n\r\n\
                    event: end\nid: 1.end\ndata: {\"event\":\"end\",\n\
                    data: \"state\":\"done\"}\n\n";
        for size in [1, 2, 7, sent.len()] {
            let mut lines = Lines::default();
            let read = sent.as_bytes().chunks(size).map(|bytes| lines.read(bytes).unwrap());
            let events: Vec<Event> = read.flatten().collect();
            let [Event::Chunk(chunk), Event::End(end)] = &events[..] else { panic!("{events:?}") };
            assert_eq!((chunk.number, &chunk.said), (Some(1), &Said::text("hä")));
            assert_eq!(end.state, State::Done);
        }
        assert!(Lines::default().read(b"data: no\n\n").is_err());
    }
}
