//! What a command says on stderr: progress, a wish for the next attempt, and why it failed.
//!
//! `progress PERCENT [TEXT]` is progress, `retry-after SECONDS` (or a duration) a wish; the last
//! twenty other lines are kept as the error message. It refuses to keep more than that, and it cuts
//! a line that does not end. While progress is being told nothing more is read: a command that says
//! more than can be written waits, as any handler does. Its last words do not wait with it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio_util::sync::CancellationToken;

use crate::duration::Span;

const LINES_MAX: usize = 20;
const LINE_BYTES_MAX: usize = 4096;

/// What was said.
#[derive(Debug, Default)]
pub struct Said {
    lines: VecDeque<String>,
    /// The delay that was asked for.
    pub retry_after: Option<Duration>,
}

/// A line of progress.
#[derive(Debug, PartialEq)]
pub struct Progress {
    /// From 0 to 100.
    pub percent: f64,
    /// What is being done.
    pub text: String,
}

impl From<Progress> for tidemill::Progress {
    /// In whole percents that are done: only what is all is 100.
    fn from(Progress { percent, text }: Progress) -> Self {
        let message = Some(text).filter(|text| !text.is_empty());
        Self { message, ..Self::of(percent as u64, 100) }
    }
}

impl Said {
    /// Reads to the end; `on_progress` hears of progress at once. In a `hurry`, progress that is
    /// not taken at once is left out.
    pub async fn read<F: Future<Output = ()>>(
        stderr: impl AsyncRead + Unpin,
        on_progress: impl Fn(Progress) -> F,
        hurry: CancellationToken,
    ) -> Self {
        let mut reader = BufReader::new(stderr);
        let mut said = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut part = (&mut reader).take(LINE_BYTES_MAX as u64);
            match part.read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return said,
                Ok(_) => {
                    let heard = said.hear(String::from_utf8_lossy(&line).trim_end());
                    let Some(progress) = heard else { continue };
                    tokio::select! {
                        biased;
                        () = on_progress(progress) => {}
                        () = hurry.cancelled() => {}
                    }
                }
            }
        }
    }

    /// Keeps a line, unless it is progress: that is for somebody else.
    fn hear(&mut self, line: &str) -> Option<Progress> {
        let progress = progress(line);
        if progress.is_some() {
            return progress;
        }
        if let Some(delay) = retry_after(line) {
            self.retry_after = Some(delay);
        } else if !line.is_empty() {
            if self.lines.len() == LINES_MAX {
                self.lines.pop_front();
            }
            self.lines.push_back(line.to_owned());
        }
        None
    }

    /// The error message: the last line first, because it says most and makes the fingerprint, and
    /// what led to it after.
    pub fn message(&self, otherwise: &str) -> String {
        let mut lines: Vec<_> = self.lines.iter().map(String::as_str).collect();
        match lines.pop() {
            None => otherwise.to_owned(),
            Some(last) if lines.is_empty() => last.to_owned(),
            Some(last) => format!("{last}\n{}", lines.join("\n")),
        }
    }
}

fn progress(line: &str) -> Option<Progress> {
    let rest = line.strip_prefix("progress ")?;
    let (percent, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let percent: f64 = percent.trim_end_matches('%').parse().ok()?;
    let text = text.trim().to_owned();
    (0.0..=100.0).contains(&percent).then_some(Progress { percent, text })
}

fn retry_after(line: &str) -> Option<Duration> {
    let delay = line.strip_prefix("retry-after ")?.trim();
    let seconds = delay.parse::<u64>().ok().map(Duration::from_secs);
    seconds.or_else(|| delay.parse::<Span>().ok().map(|span| span.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_from_other_words() {
        let half = Progress { percent: 50.0, text: "reading rows".to_owned() };
        assert_eq!(progress("progress 50 reading rows"), Some(half));
        assert_eq!(progress("progress 7.5%").map(|p| p.percent), Some(7.5));
        for line in ["progress", "progress slow", "progress 101", "in progress 5"] {
            assert_eq!(progress(line), None, "{line}");
        }
    }

    #[test]
    fn progress_is_kept_in_whole_percents() {
        let kept = |line| tidemill::Progress::from(progress(line).expect("progress"));
        assert_eq!(kept("progress 99.9 nearly"), tidemill::Progress::of(99, 100).message("nearly"));
        assert_eq!(kept("progress 100"), tidemill::Progress::of(100, 100));
    }

    #[tokio::test]
    async fn last_words_do_not_wait_for_progress_that_nobody_takes() {
        let hurry = CancellationToken::new();
        hurry.cancel();
        let stderr = &b"progress 1\nprogress 2\nretry-after 7\nlast words\n"[..];
        let said = Said::read(stderr, |_| std::future::pending(), hurry).await;
        assert_eq!(said.message("nothing"), "last words");
        assert_eq!(said.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn the_last_line_leads_the_message() {
        let mut said = Said::default();
        for n in 0..30 {
            said.hear(&format!("line {n}"));
        }
        said.hear("retry-after 7");
        let message = said.message("nothing");
        assert!(message.starts_with("line 29\nline 10\n") && message.ends_with("line 28"));
        assert_eq!(said.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(Said::default().message("nothing"), "nothing");
    }
}
