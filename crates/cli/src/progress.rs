//! Progress bars on stderr for what takes more than a second, and only on a terminal.
//!
//! It refuses to flicker: a bar appears after a second of work, so short work shows none.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(1);

/// A bar that appears once the work has lasted a second.
#[derive(Debug)]
pub struct Late {
    bar: ProgressBar,
    since: Instant,
    shown: bool,
}

impl Late {
    /// A bar of so many steps, or a counter when nobody knows how many.
    pub fn new(what: &str, steps: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::hidden());
        let template = match steps {
            Some(_) => "{prefix} {bar:32.cyan/dim} {human_pos}/{human_len} {per_sec} {msg}",
            None => "{spinner:.cyan} {prefix} {human_pos} {per_sec} {msg}",
        };
        bar.set_style(style(template));
        bar.set_prefix(what.to_owned());
        Self { bar, since: Instant::now(), shown: false }
    }

    /// A wait without steps.
    pub fn wait(what: &str) -> Self {
        let late = Self::new(what, None);
        late.bar.set_style(style("{spinner:.cyan} {prefix} {elapsed} {msg}"));
        late
    }

    /// So much is done.
    pub fn set(&mut self, position: u64) {
        if !self.shown && self.since.elapsed() >= PATIENCE && std::io::stderr().is_terminal() {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(position);
    }

    /// There are so many steps.
    pub fn steps(&mut self, steps: u64) {
        self.bar.set_length(steps);
    }

    /// Waits for `work` with the bar alive.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        tokio::pin!(work);
        loop {
            tokio::select! {
                answer = &mut work => break answer,
                _ = ticks.tick() => {
                    self.set(self.bar.position());
                    self.bar.tick();
                }
            }
        }
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A template of ours; one that cannot be read would be seen at once, so the default will do.
pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─")
}
