//! How Tidemill's verbs cost and how they grow: with the backlog, with history, under a held xmin.
//!
//! `measure verbs|backlog|history|held|memory|latency|tenants|noisy|limits|slots|lines|due|crowd|flows|http|workflows
//! [--store URL] [--jobs N] [--seconds N] [--large] [--keys] [--only CASES] [--samples N]`. Without a store it starts a
//! PostgreSQL of its own, with `--store sqlite` it uses a file of its own. It only reports; nothing passes or fails.

mod backlog;
mod busy;
mod crowd;
mod due;
mod flows;
mod held;
mod http;
mod latency;
mod limits;
mod lines;
mod load;
mod memory;
mod noisy;
mod slots;
mod tenants;
mod verbs;
mod workflows;

use std::collections::HashMap;
use std::error::Error;

use tidemill::Tidemill;
use tidemill_testkit::cluster::Cluster;

type Res<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The options of one run.
struct Options(HashMap<String, String>);

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> Res<Self> {
        let mut options = HashMap::new();
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("what is {word:?}?"))?;
            let value = words.next_if(|word| !word.starts_with("--")).unwrap_or_default();
            options.insert(name.to_owned(), value);
        }
        Ok(Self(options))
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.0.get(name).and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
    }
}

/// The store to measure, and what must live as long as it.
struct Bed {
    url: String,
    _cluster: Option<Cluster>,
    _folder: std::path::PathBuf,
}

impl Bed {
    fn make(options: &Options) -> Res<Self> {
        let folder = std::env::temp_dir().join(format!("tidemill-measure-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let (url, cluster) = match options.0.get("store").map(String::as_str) {
            Some("sqlite") => (format!("sqlite:{}/measure.db", folder.display()), None),
            None | Some("postgres") => {
                let cluster = Cluster::start().map_err(|e| e.to_string())?;
                (cluster.url("postgres"), Some(cluster))
            }
            Some(url) => (url.to_owned(), None),
        };
        Ok(Self { url, _cluster: cluster, _folder: folder })
    }

    /// Opens another store, empty, on the same server or in the same folder.
    async fn beside(&self, name: &str) -> Res<Tidemill> {
        let (place, rest) = self.url.rsplit_once('/').ok_or("the URL of the store has no '/'")?;
        if self.url.starts_with("sqlite:") {
            return Ok(Tidemill::open(&format!("{place}/{name}.db")).await?);
        }
        let (client, connection) =
            tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await?;
        let connection = tokio::spawn(connection);
        client.batch_execute(&format!("create database {name}")).await?;
        drop(client);
        connection.await??;
        let options = rest.find('?').map_or("", |at| &rest[at..]);
        Ok(Tidemill::open(&format!("{place}/{name}{options}")).await?)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self._folder);
    }
}

#[tokio::main]
async fn main() -> Res<()> {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let options = Options::parse(words)?;
    let bed = Bed::make(&options)?;
    let mill = Tidemill::open(&bed.url).await?;
    println!("{what} on {}", mill.store().backend());
    match what.as_str() {
        "limits" => {
            let only = options.0.get("only").map_or("", String::as_str);
            limits::measure(&mill, only, options.number("samples", 5) as usize).await?;
        }
        "http" => http::measure(&mill, options.number("jobs", 50_000)).await?,
        "verbs" => verbs::measure(&mill).await?,
        "backlog" | "history" => {
            let (is_history, large) = (what == "history", bed.beside("large").await?);
            let jobs = options.number("jobs", if is_history { 5_000_000 } else { 1_000_000 });
            let pairs = options.number("samples", 21) as usize;
            backlog::measure(&mill, &large, jobs, pairs, is_history).await?;
        }
        "held" => held::measure(&mill, &bed.url, options.number("seconds", 600)).await?,
        "memory" => memory::measure(&mill, &bed.url, options.number("jobs", 1_000_000)).await?,
        "due" => due::measure(&mill, options.number("jobs", 1_000_000)).await?,
        "crowd" => {
            let with_keys = options.0.contains_key("keys");
            crowd::measure(&mill, options.number("jobs", 1_000_000), with_keys).await?;
        }
        "tenants" => tenants::measure(&mill).await?,
        "noisy" => noisy::measure(&mill, options.number("jobs", 1_000_000)).await?,
        "slots" => slots::measure(&mill, options.number("seconds", 3)).await?,
        "flows" => {
            let is_large = options.0.contains_key("large");
            flows::measure(&mill, options.number("jobs", 15_000), is_large).await?;
        }
        "lines" => lines::measure(&mill, options.number("jobs", 20_000)).await?,
        "workflows" => workflows::measure(&mill, options.number("jobs", 100_000)).await?,
        "latency" => latency::measure(&mill, options.number("jobs", 500)).await?,
        "fill" => drop(load::fill(&mill, options.number("jobs", 1_000_000)).await?),
        _ => return Err(format!("there is nothing to measure by the name {what:?}").into()),
    }
    Ok(())
}
