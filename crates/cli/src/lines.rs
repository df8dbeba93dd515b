//! Lines of an input of any length, each of which has a limit: one without an end must not fill the memory.

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::exit::{Exit, Failure, Outcome};

/// What a line that is a job may have besides its payload.
pub const WISHES_BYTES_MAX: usize = 64 * 1024;

/// The lines that are left of an input.
pub struct Lines<R> {
    reader: R,
    number: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// All lines of an input.
    pub fn new(reader: R) -> Self {
        Self { reader, number: 0 }
    }

    /// How many lines were read.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Where the last line stands, for people.
    pub fn place(&self) -> String {
        format!("line {}", self.number)
    }

    /// The next line that is not empty, with at most so many bytes.
    pub async fn next(&mut self, bytes_max: usize) -> Outcome<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            let mut part = (&mut self.reader).take(bytes_max as u64 + 1);
            if part.read_until(b'\n', &mut line).await? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if line.len() > bytes_max {
                let message = format!("it has more than {bytes_max} bytes");
                return Err(Failure::new(Exit::Usage, "line_too_long", message).at(self.place()));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}
