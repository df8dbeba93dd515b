//! One transaction, as every way runs it: a row of the caller's, some jobs, another row, the end.

use serde::{Deserialize, Serialize};
use tidemill::{Enqueue, Job, JobId, OnDead, OnDuplicate, Receipt, Tidemill, Unique};

/// The caller's own table.
pub const CREATE: &str = "CREATE TABLE IF NOT EXISTS mine (text text NOT NULL)";
/// The caller's own rows, before and after the jobs.
pub const INSERT: [&str; 2] =
    ["INSERT INTO mine VALUES ('before')", "INSERT INTO mine VALUES ('after')"];
pub const COUNT: &str = "SELECT count(*) FROM mine";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    pub text: String,
}

impl Job for Echo {
    const KIND: &'static str = "echo";
    type Output = String;
}

/// A job that is to be enqueued.
#[derive(Debug, Clone)]
pub struct Ask {
    pub id: JobId,
    pub text: String,
    pub unique: Option<(String, OnDuplicate)>,
    pub line: Option<String>,
}

impl Ask {
    pub fn new(text: &str) -> Self {
        Self { id: JobId::new(), text: text.to_owned(), unique: None, line: None }
    }

    pub fn unique(self, key: &str, on_duplicate: OnDuplicate) -> Self {
        Self { unique: Some((key.to_owned(), on_duplicate)), ..self }
    }

    /// It takes its turn among those of this key.
    pub fn in_line(self, key: &str) -> Self {
        Self { line: Some(key.to_owned()), ..self }
    }

    /// For the library.
    pub fn job(&self) -> Enqueue {
        let job = Enqueue::from(Echo { text: self.text.clone() }).id(self.id);
        let job = match &self.line {
            Some(key) => job.key(key).ordered(OnDead::Block),
            None => job,
        };
        match &self.unique {
            Some((key, policy)) => job.unique(Unique::by_key(key).on_duplicate(*policy)),
            None => job,
        }
    }

    /// For the view, the same text on both databases.
    pub fn insert(&self) -> String {
        let Self { id, text, unique, line } = self;
        let (mut columns, mut values) = match unique {
            Some((key, policy)) => {
                (", unique_key, on_duplicate".to_owned(), format!(", '{key}', '{}'", policy.word()))
            }
            None => (String::new(), String::new()),
        };
        if let Some(key) = line {
            columns.push_str(", key, ordered");
            values = format!("{values}, '{key}', 'block'");
        }
        format!(
            r#"INSERT INTO tidemill_enqueue (id, kind, payload{columns})
               VALUES ('{id}', 'echo', '{{"text":"{text}"}}'{values})"#
        )
    }

    /// For the function of Postgres.
    pub fn call(&self) -> String {
        let Self { id, text, unique, line } = self;
        let mut options = serde_json::json!({ "id": id });
        if let Some((key, policy)) = unique {
            options["unique_key"] = key.as_str().into();
            options["on_duplicate"] = policy.word().into();
        }
        if let Some(key) = line {
            options["key"] = key.as_str().into();
            options["ordered"] = "block".into();
        }
        format!(r#"SELECT tidemill.enqueue('echo', '{{"text":"{text}"}}', '{options}')"#)
    }
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commit,
    RollBack,
}

/// A way to enqueue in a transaction of one's own.
pub trait Way {
    /// Runs one transaction. Answers receipts where the way gives them.
    async fn run(&self, mill: &Tidemill, asks: &[Ask], end: End) -> Vec<Receipt>;
    /// How many rows the caller's own table has.
    async fn rows(&self) -> i64;
    /// The URL of the store.
    fn url(&self) -> &str;
}
