//! Which alerts were told to webhooks: one book for all processes, so that each alert is told once however many see it.
//!
//! Who looks writes what has changed into the book first, then tells it, and then notes that it was told. One that dies
//! in between leaves news that the next one tells under the same ids.
//!
//! Looks of several processes cross each other, and one of them may be older than what another wrote meanwhile. It says
//! nothing about that: only who began to look after an alert was written down can know that it is over, or back.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::alert::Alert;
use crate::id::JobId;

/// More alerts at once are not told: whoever has so many looks anyway.
pub const ALERTS_MAX: usize = 1000;

/// A look that took longer changes nothing; what is over is remembered for as long, for those that still look.
const LOOK_MAX: SignedDuration = SignedDuration::from_mins(2);

/// What becomes of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It has held for long enough to be told.
    Began,
    /// It holds no more.
    Over,
}

impl Turn {
    /// How a message calls it.
    pub fn event(self) -> &'static str {
        match self {
            Self::Began => "alert.began",
            Self::Over => "alert.over",
        }
    }
}

/// An alert that was written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    alert: Alert,
    began_at: Timestamp,
    over_at: Option<Timestamp>,
    is_told: bool,
    #[serde(default)]
    is_over_told: bool,
}

/// What a process saw.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// When it began to look, by the clock of the store.
    pub from: Timestamp,
    /// When it had looked.
    pub until: Timestamp,
    /// All alerts that there are.
    pub seen: &'a [Alert],
    /// Those of them that have held for long enough to be told.
    pub holding: &'a [Alert],
}

/// The alerts that were told, or are to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Book(Vec<Entry>);

/// What nobody is known to have been told.
#[derive(Debug, Clone, Copy)]
pub struct News<'a> {
    /// Of which alert.
    pub alert: &'a Alert,
    /// What became of it.
    pub turn: Turn,
    /// When that was written down.
    pub at: Timestamp,
    began_at: Timestamp,
}

impl Book {
    /// Writes down what is new: those that hold for long enough and are not in it, and those in it that are not seen
    /// any more. Answers whether anything is.
    pub fn look(&mut self, look: Look<'_>) -> bool {
        let Look { from, until, seen, holding } = look;
        if until.duration_since(from) > LOOK_MAX {
            return false;
        }
        let mut is_changed = false;
        let seen: BTreeSet<_> = seen.iter().map(Alert::key).collect();
        for entry in self.0.iter_mut().filter(|entry| entry.over_at.is_none()) {
            if entry.began_at <= from && !seen.contains(&entry.alert.key()) {
                (entry.over_at, is_changed) = (Some(until), true);
            }
        }
        self.0.retain(|entry| !entry.is_forgotten(from));
        for alert in holding {
            let is_known = |entry: &Entry| {
                entry.alert.key() == alert.key() && entry.over_at.is_none_or(|at| at > from)
            };
            if !self.0.iter().any(is_known) && self.0.len() < ALERTS_MAX {
                self.0.push(Entry::new(alert.clone(), until));
                is_changed = true;
            }
        }
        is_changed
    }

    /// What is to be told.
    pub fn news(&self) -> Vec<News<'_>> {
        let mut news = Vec::new();
        for entry in &self.0 {
            let (alert, began_at) = (&entry.alert, entry.began_at);
            if !entry.is_told {
                news.push(News { alert, turn: Turn::Began, at: began_at, began_at });
            }
            if let Some(at) = entry.over_at.filter(|_| !entry.is_over_told) {
                news.push(News { alert, turn: Turn::Over, at, began_at });
            }
        }
        news
    }

    /// All of it was told.
    pub fn tell(&mut self) {
        for entry in &mut self.0 {
            (entry.is_told, entry.is_over_told) = (true, entry.over_at.is_some());
        }
    }
}

impl Entry {
    fn new(alert: Alert, began_at: Timestamp) -> Self {
        Self { alert, began_at, over_at: None, is_told: false, is_over_told: false }
    }

    /// Whether it is over, was told, and no look that counts can be older than its end.
    fn is_forgotten(&self, from: Timestamp) -> bool {
        self.is_over_told && self.over_at.is_some_and(|at| from.duration_since(at) > LOOK_MAX)
    }
}

impl News<'_> {
    /// The delivery of it to a webhook: the same, whoever tells it.
    pub fn delivery(&self, webhook: Uuid) -> JobId {
        let (sort, queue, kind) = self.alert.key();
        let (event, sort, began) = (self.turn.event(), sort.word(), self.began_at.as_microsecond());
        // No name has a line break in it.
        let text = format!("{event}\n{sort}\n{queue:?}\n{kind:?}\n{began}\n{webhook}");
        JobId::of_text(self.at, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::AlertKind;

    fn alert(queue: &str) -> Alert {
        Alert {
            alert: AlertKind::OldestWaits,
            queue: Some(queue.into()),
            kind: None,
            value: 1.0,
            threshold: 1.0,
            since: None,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A look that took no time.
    fn look<'a>(second: i64, seen: &'a [Alert], holding: &'a [Alert]) -> Look<'a> {
        Look { from: at(second), until: at(second), seen, holding }
    }

    fn told(book: &Book) -> Vec<(Turn, String)> {
        let queue = |news: &News<'_>| news.alert.queue.clone().unwrap();
        book.news().iter().map(|news| (news.turn, queue(news))).collect()
    }

    #[test]
    fn each_alert_is_told_when_it_begins_and_when_it_is_over() {
        let (a, b, mut book) = (alert("a"), alert("b"), Book::default());
        assert!(!book.look(look(1, std::slice::from_ref(&a), &[])), "it has not held for long");
        let both = [a.clone(), b.clone()];
        assert!(book.look(look(2, &both, &both)));
        assert_eq!(told(&book), [(Turn::Began, "a".into()), (Turn::Began, "b".into())]);
        assert!(!book.look(look(3, &both, &both)), "known, though nobody was told yet");
        book.tell();
        assert!(told(&book).is_empty());
        // Another process sees it as well, and has not for as long.
        assert!(!book.look(look(4, &both, &[])));
        assert!(book.look(look(5, &[b], &[])));
        assert_eq!(told(&book), [(Turn::Over, "a".into())]);
        book.tell();
        assert!(book.look(look(6, &both, &both)));
        assert_eq!(told(&book), [(Turn::Began, "a".into())], "once more");
    }

    #[test]
    fn a_look_that_is_older_than_what_was_written_down_changes_nothing_about_it() {
        let (a, mut book) = ([alert("a")], Book::default());
        // One looked before it began, one began it, and the first comes to the book only now.
        assert!(book.look(Look { from: at(1), until: at(3), seen: &a, holding: &a }));
        book.tell();
        assert!(!book.look(Look { from: at(2), until: at(4), seen: &[], holding: &[] }));
        assert!(book.look(look(5, &[], &[])), "one that looked later knows that it is over");
        book.tell();
        // The same about its end.
        assert!(!book.look(Look { from: at(4), until: at(6), seen: &a, holding: &a }));
        assert!(book.look(look(7, &a, &a)));
        assert_eq!(told(&book), [(Turn::Began, "a".into())]);
        // A look may be so old that nobody remembers what has ended since.
        book.tell();
        assert!(!book.look(Look { from: at(8), until: at(129), seen: &[], holding: &[] }));
        assert!(book.look(look(130, &[], &[])));
        book.tell();
        book.look(look(251, &[], &[]));
        assert_eq!(book, Book::default(), "what is over is forgotten");
    }

    #[test]
    fn one_that_was_never_told_is_told_whole() {
        let (a, mut book) = ([alert("a")], Book::default());
        book.look(look(1, &a, &a));
        book.look(look(2, &[], &[]));
        assert_eq!(told(&book), [(Turn::Began, "a".into()), (Turn::Over, "a".into())]);
    }

    #[test]
    fn deliveries_of_other_news_have_other_ids() {
        let (a, mut book) = ([alert("a")], Book::default());
        book.look(look(1, &a, &a));
        let first = book.news()[0].delivery(Uuid::nil());
        assert_eq!(first, book.clone().news()[0].delivery(Uuid::nil()));
        assert_ne!(first, book.news()[0].delivery(Uuid::max()));
        book.look(look(2, &[], &[]));
        let over = book.news()[1].delivery(Uuid::nil());
        book.tell();
        book.look(look(3, &a, &a));
        assert!(first < over && over < book.news()[0].delivery(Uuid::nil()));
    }
}
