//! A file that a command line names, or `-` for stdin.

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::exit::{Failure, Outcome};

/// A file that is larger holds nothing that would be taken.
const BYTES_MAX: u64 = 1 << 30;

/// All of its text.
pub async fn read(file: &str) -> Outcome<String> {
    let mut text = String::new();
    let bytes = open(file).await?.take(BYTES_MAX).read_to_string(&mut text).await;
    bytes.map_err(|error| unreadable(file, &error))?;
    Ok(text)
}

/// The file, to be read piece by piece.
pub async fn open(file: &str) -> Outcome<Box<dyn AsyncRead + Unpin>> {
    if file == "-" {
        return Ok(Box::new(tokio::io::stdin()));
    }
    let open = tokio::fs::File::open(file).await;
    Ok(Box::new(open.map_err(|error| unreadable(file, &error))?))
}

fn unreadable(file: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{file:?} cannot be read: {error}"))
}
