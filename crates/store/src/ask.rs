//! Statements of ours that run in a caller's transaction, whatever her driver: texts go in, texts come out.
//!
//! The marks of effects stand in a table of ours in a database of hers, which need not be the store's. A job that is
//! settled in a transaction of hers is decided there, and carried out by the next settle of its attempt.
//!
//! It refuses to begin, commit or set anything on her connection.

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Makes the table of marks, unless it is there.
    CreateEffects,
    /// Takes the mark of an effect: key, job. Answers one row: what was recorded, or nothing yet.
    TakeEffect,
    /// Records what an effect came to: key, output. Answers a row if the mark was taken here.
    RecordEffect,
    /// Forgets marks: older than so many milliseconds, at most so many. Answers their number.
    ForgetEffects,
    /// Decides that a job is done: id, token, output, follow-ups as JSON. Answers a row if the token holds.
    SettleIn,
    /// Records what a step of a run came to: id, token, number, entry. Answers a row if the token holds and nothing is
    /// written under this number.
    RecordStep,
}

macro_rules! texts {
    ($dialect:literal, $question:expr) => {
        match $question {
            Question::CreateEffects => include_str!(concat!($dialect, "/sql/create_effects.sql")),
            Question::TakeEffect => include_str!(concat!($dialect, "/sql/take_effect.sql")),
            Question::RecordEffect => include_str!(concat!($dialect, "/sql/record_effect.sql")),
            Question::ForgetEffects => include_str!(concat!($dialect, "/sql/forget_effects.sql")),
            Question::SettleIn => include_str!(concat!($dialect, "/sql/settle_in.sql")),
            Question::RecordStep => include_str!(concat!($dialect, "/sql/record_step.sql")),
        }
    };
}

impl Question {
    /// Its statement for Postgres.
    pub const fn postgres(self) -> &'static str {
        texts!("postgres", self)
    }

    /// Its statement for SQLite.
    pub const fn sqlite(self) -> &'static str {
        texts!("sqlite", self)
    }
}

/// A question with its parameters.
#[derive(Debug, Clone)]
pub struct Ask {
    /// What is asked.
    pub question: Question,
    /// Its parameters.
    pub words: Vec<Option<String>>,
}

impl Ask {
    /// A question, with parameters that are all there.
    pub fn new(question: Question, words: impl IntoIterator<Item = String>) -> Self {
        Self { question, words: words.into_iter().map(Some).collect() }
    }
}

/// The first column of every row.
pub type Answer = Vec<Option<String>>;
