//! Somebody who stands before the server, as a proxy does, and does not let everything through.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tidemill_client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of a request.
pub enum Verdict {
    /// The server answers it.
    Passes,
    /// The server answers it, and the answer is lost.
    IsLost,
    /// This is answered, in a page for people.
    Stops(&'static str),
}

/// A client of this server, whose requests are judged on their way, each as a whole.
pub async fn doorman(
    server: SocketAddr,
    judge: impl Fn(&str) -> Verdict + Send + Sync + 'static,
) -> Client {
    let (listener, judge) =
        (TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap(), Arc::new(judge));
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let judge = Arc::clone(&judge);
            tokio::spawn(async move { pass(client, server, &*judge).await });
        }
    });
    Client::new(&url).unwrap()
}

/// One request; its connection is closed after it.
async fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    judge: &(impl Fn(&str) -> Verdict + Sync),
) -> std::io::Result<()> {
    let request = read(&mut client).await?;
    let is_lost = match judge(&request) {
        Verdict::Passes => false,
        Verdict::IsLost => true,
        Verdict::Stops(status) => {
            let page = "<html>no</html>";
            let (bytes, close) = (page.len(), "connection: close");
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: {bytes}\r\n{close}\r\n\r\n{page}");
            return client.write_all(answer.as_bytes()).await;
        }
    };
    let mut far = TcpStream::connect(server).await?;
    far.write_all(request.replacen("\r\n", "\r\nconnection: close\r\n", 1).as_bytes()).await?;
    if is_lost {
        return far.read_to_end(&mut Vec::new()).await.map(drop);
    }
    let (mut gone, mut back) = client.split();
    tokio::select! {
        copied = copy(&mut far, &mut back) => copied.map(drop),
        read = gone.read_u8() => read.map(drop),
    }
}

/// A request with its body.
async fn read(client: &mut TcpStream) -> std::io::Result<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let named = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let bytes = named.map_or(0, |bytes| bytes.parse().unwrap());
            if body.len() >= bytes {
                return Ok(text.into_owned());
            }
        }
        if client.read_buf(&mut request).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}
