//! `tidemill token`: credentials for whoever talks to a server, under the name operators know them by.
//!
//! Elsewhere they are credentials, because a token is the number that proves a lease. It refuses to show a
//! secret twice, and says so when it could not show it at all.

use std::io::Write;

use comfy_table::{Cell, Color};
use serde::Serialize;
use serde_json::json;
use tidemill::{CredentialView, Grant, Role, Secret, Standing, Timestamp};

use crate::app::{App, quoted};
use crate::duration::{Span, relative};
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// What to do with tokens. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List tokens, with their last use and their end (the default)
    List,
    /// Make a token; it is shown this once
    Create(Create),
    /// End a token, in every process within a second
    Revoke {
        /// Its name, its id, or the token itself where it was found
        #[arg(value_name = "NAME|ID|TOKEN")]
        which: String,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// What people know it by
    name: String,
    /// What its holder may do: viewer, producer, worker, operator or admin
    #[arg(long)]
    role: String,
    /// Only this queue, or pattern such as 'mail:*'; may be given more than once [default: all]
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
    /// Only jobs of this tenant [default: all]
    #[arg(long)]
    tenant: Option<String>,
    /// How long it is good for, such as 30d [default: until it is revoked]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    expires: Option<Span>,
}

/// A token in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    view: &'a CredentialView,
    standing: Standing,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or(Verb::List) {
        Verb::List => list(app).await,
        Verb::Create(args) => create(app, args).await,
        Verb::Revoke { which } => {
            let mill = app.open_existing().await?;
            let found = mill.credentials().find(&which).await?;
            mill.credentials().revoke(found.id).await?;
            mill.close().await;
            let name = found.name;
            let sentence =
                format!("{name} is not accepted any more, in every process within a second");
            let document = json!({ "name": name, "id": found.id, "answer": "revoked" });
            output::did(app, &document, &sentence);
            Ok(Exit::Ok)
        }
    }
}

async fn create(app: &App, args: Create) -> Outcome {
    let role: Role = args.role.parse()?;
    let grant = Grant { role, queues: args.queue, tenant: args.tenant };
    let mill = app.open().await?;
    let expires_in = args.expires.map(|span| span.0);
    let (view, secret) = mill.credentials().create(&args.name, grant, expires_in).await?;
    mill.close().await;
    show(app, &view, &secret).map_err(|error| {
        let revoke = format!("tidemill token revoke {}", quoted(&view.name));
        Failure::from(error)
            .at("the token was made, but could not be shown")
            .hint(format!("`{revoke}`, then make another"))
    })?;
    eprintln!("this is the token {}, {}", view.name, said(&view.grant));
    match view.expires_at {
        Some(at) => eprintln!("it is shown this once, and good until {at}"),
        None => eprintln!("it is shown this once, and good until it is revoked"),
    }
    Ok(Exit::Ok)
}

/// Writes the secret, and nothing else, on stdout.
fn show(app: &App, view: &CredentialView, secret: &Secret) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if app.json {
        let shown = Shown { view, standing: Standing::Live, secret: Some(secret.reveal()) };
        writeln!(stdout, "{}", serde_json::to_string(&shown)?)?;
    } else {
        writeln!(stdout, "{}", secret.reveal())?;
    }
    stdout.flush()
}

async fn list(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let (tokens, now) = (mill.credentials().list().await?, mill.now().await?);
    mill.close().await;
    if app.json {
        for view in &tokens {
            output::json(&Shown { view, standing: view.standing(now), secret: None });
        }
        return Ok(Exit::Ok);
    }
    if tokens.is_empty() {
        eprintln!("there are no tokens; `tidemill token create NAME --role producer` makes one");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&[
        "TOKEN", "ROLE", "QUEUES", "TENANT", "STATE", "LAST USE", "EXPIRES", "MADE", "ID",
    ]);
    for view in &tokens {
        table.add_row(row(view, now));
    }
    output::show(&table);
    Ok(Exit::Ok)
}

fn row(view: &CredentialView, now: Timestamp) -> Vec<Cell> {
    let time = |at: Option<Timestamp>, none: &str| match at {
        Some(at) => Cell::new(relative(at, now)),
        None => output::quiet(none),
    };
    let Grant { role, queues, tenant } = &view.grant;
    let standing = view.standing(now);
    vec![
        Cell::new(&view.name),
        Cell::new(role.word()),
        if queues.is_empty() { output::quiet("all") } else { Cell::new(queues.join(" ")) },
        tenant.as_ref().map_or_else(|| output::quiet("all"), Cell::new),
        match standing {
            Standing::Live => Cell::new(standing.word()).fg(Color::Green),
            Standing::Expired | Standing::Revoked => output::quiet(standing.word()),
        },
        time(view.used_at, "never"),
        time(view.expires_at, "never"),
        Cell::new(relative(view.created_at, now)),
        Cell::new(view.id),
    ]
}

/// A grant in a line.
fn said(grant: &Grant) -> String {
    let queues = match grant.queues.as_slice() {
        [] => "all queues".to_owned(),
        queues => queues.join(" "),
    };
    let tenant = grant.tenant.as_ref().map(|tenant| format!(", tenant {tenant}"));
    format!("{} of {queues}{}", grant.role.word(), tenant.unwrap_or_default())
}
