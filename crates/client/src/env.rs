//! A client of the server that the environment names, by the variables that the binary `tidemill` reads and hands on.

use crate::error::{Error, Result};
use crate::http::{Builder, Client};

const SERVER: &str = "TIDEMILL_SERVER";
const TOKEN: &str = "TIDEMILL_TOKEN";
const CA_FILE: &str = "TIDEMILL_CA_FILE";

impl Client {
    /// The server of `TIDEMILL_SERVER`, with the secret that `TIDEMILL_TOKEN` has, and trusting the certificates (PEM)
    /// of the file that `TIDEMILL_CA_FILE` names, if these are set. `tidemill workflows replay --with` sets them, so a
    /// worker made of such a client can be held against the runs of a server.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// let worker = tidemill_client::Client::from_env()?.worker();
    /// # Ok(()) }
    /// ```
    pub fn from_env() -> Result<Self> {
        let url = given(SERVER).unwrap_or_default();
        let builder = Self::builder(&url);
        // In a command that `tidemill work` runs it is the number that proves a lease, which is no secret of anybody.
        let token = given(TOKEN).filter(|token| token.contains(|c: char| !c.is_ascii_digit()));
        let builder = token.into_iter().fold(builder, Builder::token);
        let unread = |file: &str, error: std::io::Error| Error::ClientInvalid {
            url: url.clone(),
            reason: format!("{CA_FILE} names {file:?}, which cannot be read: {error}"),
        };
        let read = |file: String| std::fs::read_to_string(&file).map_err(|e| unread(&file, e));
        let trusted = given(CA_FILE).map(read).transpose()?;
        trusted.into_iter().fold(builder, Builder::trust).build().map_err(|error| match error {
            Error::ClientInvalid { url, .. } if url.is_empty() => {
                let reason = format!("{SERVER} is not set; it has the URL of the server");
                Error::ClientInvalid { url, reason }
            }
            error => error,
        })
    }
}

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
