//! `tidemill serve`: HTTP for every language, until it is told to stop.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use serde_json::json;
use tidemill::core::webhook::target::{Allowed, Policy};
use tidemill_relay::webhook;
use tidemill_relay::webhook::send::Sender;
use tidemill_server::{Access, Door, Server, Settings, TlsFiles};

use crate::app::{App, interrupted};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

const WHY_STORE: &str = "it is a server itself";

const AFTER_HELP: &str = "\
Examples:
  tidemill serve
  tidemill --store postgres://localhost/app serve --listen 127.0.0.1:9000
  tidemill serve --listen 0.0.0.0:8384 --host mill.example --require-token --tls-cert mill.crt --tls-key mill.key
  curl -s localhost:8384/v1/jobs -H 'content-type: application/json' -d '{\"kind\":\"greet\"}'

Without --require-token it listens on addresses of this machine alone: whoever can reach it may do everything.
`tidemill token create` makes tokens.";

/// How to serve.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, env = "TIDEMILL_LISTEN", value_name = "ADDRESS", default_value_t = Settings::default().listen)]
    listen: SocketAddr,
    /// Let in only who shows a token that may do what is asked
    #[arg(long, env = "TIDEMILL_REQUIRE_TOKEN")]
    require_token: bool,
    /// Speak TLS with this certificate (PEM, with those that lead to its root); a renewed file is taken by itself
    #[arg(long, env = "TIDEMILL_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, env = "TIDEMILL_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Another name under which it is reached, besides localhost; may be given several times
    #[arg(long = "host", env = "TIDEMILL_HOSTS", value_name = "NAME", value_delimiter = ',')]
    hosts: Vec<String>,
    /// An origin whose pages may call it; may be given several times
    #[arg(long = "origin", env = "TIDEMILL_ORIGINS", value_name = "URL", value_delimiter = ',')]
    origins: Vec<String>,
    /// Send traces to the OpenTelemetry collector at this URL, such as http://localhost:4318
    #[arg(long, env = "TIDEMILL_OTLP", hide_env_values = true, value_name = "URL")]
    otlp: Option<String>,
    /// Where webhooks may point besides the public internet: a network such as 10.0.0.0/8, or a host; also over http
    #[arg(
        long = "webhook-allow",
        env = "TIDEMILL_WEBHOOK_ALLOW",
        value_name = "NET|HOST",
        value_delimiter = ','
    )]
    webhook_allow: Vec<Allowed>,
    /// A port that webhooks may call; may be given several times [default: 80, 443 and all from 1024 on]
    #[arg(
        long = "webhook-port",
        env = "TIDEMILL_WEBHOOK_PORTS",
        value_name = "PORT",
        value_delimiter = ','
    )]
    webhook_ports: Vec<u16>,
    /// Deliver no webhooks; another process does
    #[arg(long, env = "TIDEMILL_NO_WEBHOOKS")]
    no_webhooks: bool,
    /// Print the description of the API (OpenAPI 3.1), and do not serve
    #[arg(long)]
    describe: bool,
}

impl Args {
    /// Where traces go.
    pub fn otlp(&self) -> Option<&str> {
        self.otlp.as_deref()
    }
}

/// Serves.
pub async fn run(app: &App, args: Args) -> Outcome {
    if args.describe {
        output::line(Server::description());
        return Ok(Exit::Ok);
    }
    if args.tls_cert.is_some() != args.tls_key.is_some() {
        return Err(Failure::usage("--tls-cert and --tls-key go together"));
    }
    app.refuse_server(WHY_STORE)?;
    let stopped = interrupted();
    let Args { listen, require_token, hosts, origins, tls_cert, tls_key, .. } = args;
    let tls = tls_cert.zip(tls_key).map(|(certificate, key)| TlsFiles { certificate, key });
    let scheme = if tls.is_some() { "https" } else { "http" };
    let webhooks = Policy { allow: args.webhook_allow, ports: args.webhook_ports };
    let sender = Sender::new(webhooks.clone());
    let access = if require_token { Access::Credentials } else { Access::Open };
    let settings =
        Settings { listen, access, tls, hosts, origins, webhooks, ..Settings::default() };
    // Before the store is open: a server that waits for its database says so, instead of nothing.
    let door = Door::open(settings).await;
    let door = door.map_err(|error| Failure::new(Exit::Usage, error.code(), error.to_string()))?;
    let mill = app.open_patiently(WHY_STORE).await?;
    let server = door.serve(mill.clone());
    let relay = if args.no_webhooks { None } else { Some(webhook::start(&mill, sender).await?) };
    let url = format!("{scheme}://{}", server.address());
    if app.json {
        output::json(&json!({ "url": url }));
    } else {
        output::line(format!("listens on {url}; {url}/docs says what it answers"));
    }
    notify("READY=1");
    stopped.await;
    notify("STOPPING=1");
    // Both at once: what is delivered is not waited for after the last request.
    let told = async {
        if let Some(relay) = relay {
            relay.stop().await;
        }
    };
    tokio::join!(server.stop(), told);
    mill.close().await;
    Ok(Exit::Ok)
}

/// Tells systemd, if it asked to be told.
fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let told = UnixDatagram::unbound().and_then(|from| from.send_to(state.as_bytes(), &socket));
    if let Err(error) = told {
        tracing::warn!(%error, state, "systemd could not be told");
    }
}
