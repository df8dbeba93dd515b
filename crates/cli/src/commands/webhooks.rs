//! `tidemill webhooks`: who is told of ended jobs and parked runs, and what became of it.
//!
//! It refuses to show a secret twice; the one moment is when it is made.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tidemill::core::webhook::sign::SigningSecret;
use tidemill::core::webhook::{Event, Webhook};
use tidemill::{JobId, State, WebhookView};

use crate::app::{App, whoami};
use crate::duration::{Span, relative};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// What to do with webhooks. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List webhooks, and whether their endpoints are well (the default)
    List,
    /// Make or change a webhook; the secret of a new one is shown this once
    Set(Set),
    /// Take a webhook away; what was to be delivered to it is called off
    Delete {
        /// The webhook
        name: String,
    },
    /// Give a webhook a new secret, which is shown this once
    Rotate {
        /// The webhook
        name: String,
        /// The old secret goes on signing so long, beside the new one
        #[arg(long, value_name = "DURATION", default_value = "1d")]
        overlap: Span,
    },
    /// What became of its deliveries, newest first; `tidemill jobs show` has each try
    Deliveries {
        /// The webhook
        name: String,
        /// Only those in this state
        #[arg(long)]
        state: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Send a message once more, now, under the id it had
    Redeliver {
        /// The webhook
        name: String,
        /// The delivery
        delivery: JobId,
    },
}

#[derive(Debug, clap::Args)]
struct Set {
    /// The webhook
    name: String,
    /// Where it is told
    url: String,
    /// Jobs of this queue or pattern; may be given more than once [default: only jobs that ask for it]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Only jobs of this kind; may be given more than once
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only jobs of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Of this: done, cancelled, dead or parked; may be given more than once [default: all]
    #[arg(long = "event", value_name = "EVENT")]
    events: Vec<String>,
    /// Tell of built-in alerts, too (`tidemill alerts`)
    #[arg(long)]
    alerts: bool,
    /// Tell what a job came to, up to 256 KiB
    #[arg(long)]
    output: bool,
    /// Tell nothing for now
    #[arg(long)]
    paused: bool,
}

/// A webhook in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    view: &'a WebhookView,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or(Verb::List) {
        Verb::List => list(app).await,
        Verb::Set(args) => set(app, args).await,
        Verb::Delete { name } => {
            let mill = app.open_existing().await?;
            mill.webhooks().delete(&name).await?;
            mill.close().await;
            let sentence = format!("{name} is told nothing any more");
            output::did(app, &json!({ "name": name, "answer": "deleted" }), &sentence);
            Ok(Exit::Ok)
        }
        Verb::Rotate { name, overlap } => {
            let mill = app.open_existing().await?;
            let (view, secret) = mill.webhooks().rotate(&name, overlap.0).await?;
            mill.close().await;
            show(app, &view, &secret)?;
            eprintln!("this is the new secret of {name}; it is shown this once");
            if overlap.0 > Duration::ZERO {
                eprintln!("the old one goes on signing for {}", crate::duration::short(overlap.0));
            }
            Ok(Exit::Ok)
        }
        Verb::Deliveries { name, state, limit } => deliveries(app, &name, state, limit).await,
        Verb::Redeliver { name, delivery } => {
            let mill = app.open_existing().await?;
            let by = mill.webhooks().redeliver(&name, delivery, &whoami()).await?;
            mill.close().await;
            if app.json {
                output::json(&json!({ "name": name, "answer": "redelivered", "id": by }));
            } else {
                output::line(by);
            }
            Ok(Exit::Ok)
        }
    }
}

async fn set(app: &App, args: Set) -> Outcome {
    let Set { name, url, queues, kinds, tenant, events, alerts, output, paused } = args;
    let events = events.iter().map(|word| word.parse()).collect::<Result<Vec<Event>, _>>()?;
    let webhook = Webhook { url, queues, kinds, tenant, events, alerts, output, paused };
    let mill = app.open().await?;
    let (view, secret) = mill.webhooks().set(&name, webhook).await?;
    mill.close().await;
    let Some(secret) = secret else {
        if app.json {
            output::json(&Shown { view: &view, secret: None });
        }
        eprintln!("{name} was changed; its secret is as before");
        return Ok(Exit::Ok);
    };
    show(app, &view, &secret)
        .map_err(|error| error.hint(format!("`tidemill webhooks rotate {name}` makes another")))?;
    eprintln!(
        "this is the secret of {name}, by which its receiver knows us; it is shown this once"
    );
    eprintln!("`tidemill serve` delivers");
    Ok(Exit::Ok)
}

/// Writes the secret, and nothing else, on stdout.
fn show(app: &App, view: &WebhookView, secret: &SigningSecret) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let text = if app.json {
        let shown = Shown { view, secret: Some(secret.reveal()) };
        serde_json::to_string(&shown).map_err(std::io::Error::from)?
    } else {
        secret.reveal().to_owned()
    };
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(Failure::from)
}

async fn list(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let all = mill.webhooks().list().await?;
    mill.close().await;
    if app.json {
        for view in &all {
            output::json(&Shown { view, secret: None });
        }
        return Ok(Exit::Ok);
    }
    if all.is_empty() {
        eprintln!("there are no webhooks; `tidemill webhooks set NAME URL --queue '*'` makes one");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["WEBHOOK", "URL", "QUEUES", "EVENTS", "ENDPOINT"]);
    for view in &all {
        let hook = &view.webhook;
        let queues =
            if hook.queues.is_empty() { "as jobs ask".to_owned() } else { hook.queues.join(" ") };
        let mut events: Vec<_> = hook.events.iter().map(|event| event.word()).collect();
        if events.is_empty() {
            events.extend(Event::ALL.map(Event::word));
        }
        events.extend(hook.alerts.then_some("alerts"));
        let health = match (hook.paused, view.is_broken) {
            (true, _) => "paused".to_owned(),
            (_, true) => format!("too much failed; {} wait", view.held),
            _ => "well".to_owned(),
        };
        table.add_row(vec![view.name.clone(), hook.url.clone(), queues, events.join(" "), health]);
    }
    output::show(&table);
    Ok(Exit::Ok)
}

async fn deliveries(app: &App, name: &str, state: Option<String>, limit: usize) -> Outcome {
    let state = state.map(|word| word.parse::<State>()).transpose()?;
    let mill = app.open_existing().await?;
    let (hooks, mut all, mut before) = (mill.webhooks(), Vec::new(), None);
    // A page ends after so many jobs, whoever's they are: it may have none of these, and others follow.
    loop {
        let (page, next) = hooks.deliveries(name, state, before, limit - all.len()).await?;
        all.extend(page);
        before = next;
        if next.is_none() || all.len() >= limit {
            break;
        }
    }
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        all.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    let mut table =
        output::table(&["DELIVERY", "EVENT", "JOB", "STATE", "TRIES", "ANSWER", "MADE"]);
    for one in &all {
        let answer = match (one.status, one.took_ms, &one.error) {
            (Some(status), Some(took), _) => format!("{status} in {took} ms"),
            (_, _, Some(error)) => error.clone(),
            _ => String::new(),
        };
        table.add_row(vec![
            one.id.to_string(),
            one.event.clone(),
            one.job.clone().unwrap_or_default(),
            one.state.word().to_owned(),
            one.attempt.to_string(),
            answer,
            relative(one.created_at, now),
        ]);
    }
    output::show(&table);
    Ok(Exit::Ok)
}
