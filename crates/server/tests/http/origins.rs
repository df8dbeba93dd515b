//! Pages: of the server's own origin, of those it was told of, and of strangers.

use std::net::{Ipv6Addr, SocketAddr};

use http::StatusCode;
use reqwest::Method;
use serde_json::json;
use tidemill_server::{Server, Settings};
use tokio::net::TcpStream;

use super::kit::{Kit, Told, settings};

over_both_stores!(pages_that_are_allowed_may_ask_and_read_what_is_answered);

const DASH: &str = "http://dash.example";

async fn pages_that_are_allowed_may_ask_and_read_what_is_answered(kit: Kit) {
    let origins = vec![DASH.to_owned()];
    let server = Server::start(kit.mill.clone(), Settings { origins, ..settings() }).await.unwrap();
    let url = format!("http://{}/v1/jobs", server.address());
    let client = reqwest::Client::new();
    let send = async |method: Method, headers: &[(&str, &str)]| {
        let request = client.request(method.clone(), &url);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let is_post = method == Method::POST;
        let request = if is_post { request.json(&json!({ "kind": "k" })) } else { request };
        Told::of(request.send().await.unwrap()).await
    };
    let asks = ("access-control-request-method", "POST");
    let with = ("access-control-request-headers", "authorization,content-type,idempotency-key");
    let told = send(Method::OPTIONS, &[("origin", DASH), asks, with]).await.is(204);
    assert_eq!(told.header("access-control-allow-origin"), DASH);
    assert_eq!(told.header("vary"), "Origin");
    let allows = |what: &str, word: &str| {
        let all = told.header(what).to_ascii_lowercase();
        assert!(all.split(", ").any(|own| own == word.to_ascii_lowercase()), "{all}: {word}");
    };
    with.1.split(',').for_each(|word| allows("access-control-allow-headers", word));
    for word in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        allows("access-control-allow-methods", word);
    }
    assert!(told.header("access-control-max-age").parse::<u32>().unwrap() > 60);
    assert_eq!(told.header("access-control-allow-credentials"), "");

    let told = send(Method::POST, &[("origin", DASH)]).await.is(201);
    assert_eq!(told.header("access-control-allow-origin"), DASH);
    assert_eq!(told.header("vary"), "Origin");
    for name in ["Location", "ETag", "Retry-After", "RateLimit"] {
        let shown = told.header("access-control-expose-headers");
        assert!(shown.split(", ").any(|own| own == name), "{shown}: {name}");
    }
    let told = send(Method::PATCH, &[("origin", DASH)]).await.is(405);
    assert_eq!(told.header("access-control-allow-origin"), DASH, "refusals are read, too");

    let own = format!("http://{}", server.address());
    for (origin, status) in
        [("http://evil.example", 403), ("https://dash.example", 403), ("null", 403)]
    {
        for told in [
            send(Method::OPTIONS, &[("origin", origin), asks, with]).await,
            send(Method::GET, &[("origin", origin)]).await,
        ] {
            let told = told.refused(status, "origin_refused", origin);
            assert!(is_silent(&told), "{told:?}");
        }
    }
    for headers in [&[][..], &[("origin", own.as_str())]] {
        let told = send(Method::GET, headers).await.is(200);
        assert!(is_silent(&told), "{told:?}");
    }
    let elsewhere = [("origin", DASH), ("host", "evil.example"), asks];
    assert!(is_silent(&send(Method::OPTIONS, &elsewhere).await.refused(421, "host_refused", "")));
    server.stop().await;
    kit.close().await;
}

fn is_silent(told: &Told) -> bool {
    told.headers.keys().all(|name| !name.as_str().starts_with("access-control-"))
}

/// The status of a request over HTTP/2 without TLS, for this host and from a page of this origin.
async fn status(server: &Server, host: &str, origin: Option<&str>) -> StatusCode {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::builder().uri(format!("http://{host}/v1/jobs"));
    let request =
        origin.into_iter().fold(request, |request, origin| request.header("origin", origin));
    let mut sender = sender.ready().await.unwrap();
    let (answer, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
    let status = answer.await.unwrap().status();
    connection.abort();
    status
}

#[tokio::test]
async fn pages_of_its_own_origin_call_it_over_http_2() {
    let kit = Kit::sqlite().await;
    let at = kit.server.address();
    for (host, origin, is) in [
        (at.to_string(), format!("http://{at}"), 200),
        (at.to_string(), format!("https://{at}"), 200),
        (at.to_string(), "http://127.0.0.1:1".to_owned(), 403),
        (at.to_string(), "http://evil.example".to_owned(), 403),
        ("LocalHost:80".to_owned(), "http://localhost".to_owned(), 200),
        ("localhost.:8384".to_owned(), "http://localhost:8384".to_owned(), 200),
        ("evil.example".to_owned(), "http://evil.example".to_owned(), 421),
    ] {
        let told = status(&kit.server, &host, Some(&origin)).await;
        assert_eq!(told, is, "{host} {origin}");
    }
    assert_eq!(status(&kit.server, "localhost..", None).await, 421);
    kit.close().await;
}

#[tokio::test]
async fn an_address_of_version_6_is_written_in_brackets() {
    let kit = Kit::sqlite().await;
    let listen = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let hosts = vec!["Mill.Example.".to_owned()];
    let server =
        Server::start(kit.mill.clone(), Settings { listen, hosts, ..settings() }).await.unwrap();
    let port = server.address().port();
    for (host, is) in [
        (format!("[::1]:{port}"), 200),
        (format!("[0:0:0:0:0:0:0:1]:{port}"), 200),
        ("mill.example".to_owned(), 200),
        ("MILL.example.:80".to_owned(), 200),
        // By no name, so under no name of a stranger.
        (format!("[::2]:{port}"), 200),
        ("10.1.2.3".to_owned(), 200),
        ("[10.1.2.3]".to_owned(), 421),
    ] {
        let origin = format!("http://{host}");
        assert_eq!(status(&server, &host, Some(&origin)).await, is, "{host}");
    }
    server.stop().await;
    kit.close().await;
}
