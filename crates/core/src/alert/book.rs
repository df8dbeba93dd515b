//! Which alerts were told to webhooks: one book for all processes, so that each alert is told once however many see it.
//!
//! Who looks writes what has changed into the book first, then tells it, and then notes that it was told. One that dies
//! in between leaves news that the next one tells under the same ids.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::alert::Alert;
use crate::id::JobId;

/// More alerts at once are not told: whoever has so many looks anyway.
pub const ALERTS_MAX: usize = 1000;

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
    pub fn look(&mut self, now: Timestamp, seen: &[Alert], holding: &[Alert]) -> bool {
        let mut is_changed = false;
        let seen: BTreeSet<_> = seen.iter().map(Alert::key).collect();
        for entry in self.0.iter_mut().filter(|entry| entry.over_at.is_none()) {
            if !seen.contains(&entry.alert.key()) {
                (entry.over_at, is_changed) = (Some(now), true);
            }
        }
        for alert in holding {
            let is_known = self.0.iter().any(|entry| entry.alert.key() == alert.key());
            if !is_known && self.0.len() < ALERTS_MAX {
                let (alert, began_at) = (alert.clone(), now);
                self.0.push(Entry { alert, began_at, over_at: None, is_told: false });
                is_changed = true;
            }
        }
        is_changed
    }

    /// What is to be told.
    pub fn news(&self) -> Vec<News<'_>> {
        let mut news = Vec::new();
        for Entry { alert, began_at, over_at, is_told } in &self.0 {
            let began_at = *began_at;
            if !is_told {
                news.push(News { alert, turn: Turn::Began, at: began_at, began_at });
            }
            if let Some(at) = *over_at {
                news.push(News { alert, turn: Turn::Over, at, began_at });
            }
        }
        news
    }

    /// All of it was told.
    pub fn tell(&mut self) {
        self.0.retain(|entry| entry.over_at.is_none());
        self.0.iter_mut().for_each(|entry| entry.is_told = true);
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

    fn told(book: &Book) -> Vec<(Turn, String)> {
        let queue = |news: &News<'_>| news.alert.queue.clone().unwrap();
        book.news().iter().map(|news| (news.turn, queue(news))).collect()
    }

    #[test]
    fn each_alert_is_told_when_it_begins_and_when_it_is_over() {
        let (a, b, mut book) = (alert("a"), alert("b"), Book::default());
        assert!(!book.look(at(1), std::slice::from_ref(&a), &[]), "it has not held for long");
        let both = [a.clone(), b.clone()];
        assert!(book.look(at(2), &both, &both));
        assert_eq!(told(&book), [(Turn::Began, "a".into()), (Turn::Began, "b".into())]);
        assert!(!book.look(at(3), &both, &both), "known, though nobody was told yet");
        book.tell();
        assert!(told(&book).is_empty());
        // Another process sees it as well, and has not for as long.
        assert!(!book.look(at(4), &both, &[]));
        assert!(book.look(at(5), &[b], &[]));
        assert_eq!(told(&book), [(Turn::Over, "a".into())]);
        book.tell();
        assert!(book.look(at(6), &both, &both));
        assert_eq!(told(&book), [(Turn::Began, "a".into())], "once more");
    }

    #[test]
    fn one_that_was_never_told_is_told_whole() {
        let (a, mut book) = ([alert("a")], Book::default());
        book.look(at(1), &a, &a);
        book.look(at(2), &[], &[]);
        assert_eq!(told(&book), [(Turn::Began, "a".into()), (Turn::Over, "a".into())]);
    }

    #[test]
    fn deliveries_of_other_news_have_other_ids() {
        let (a, mut book) = ([alert("a")], Book::default());
        book.look(at(1), &a, &a);
        let first = book.news()[0].delivery(Uuid::nil());
        assert_eq!(first, book.clone().news()[0].delivery(Uuid::nil()));
        assert_ne!(first, book.news()[0].delivery(Uuid::max()));
        book.look(at(2), &[], &[]);
        let over = book.news()[1].delivery(Uuid::nil());
        book.tell();
        book.look(at(3), &a, &a);
        assert!(first < over && over < book.news()[0].delivery(Uuid::nil()));
    }
}
