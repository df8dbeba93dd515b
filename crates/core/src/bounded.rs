//! A list in a text of which no more is kept than it may have: what is beyond is counted, and refused by whoever knows
//! what it is.
//!
//! A small text may say a great many things, each of which takes a hundred times as much room as its letters.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use crate::error::{Error, Result};

/// Elements of all lists of one text that are kept, where it is read by [`together`].
pub const TOGETHER_MAX: usize = 50_000;

thread_local! {
    /// How many elements the lists of the text have had that is being read, if they are counted together.
    static SEEN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Reads a text of whose lists no more than [`TOGETHER_MAX`] elements are kept in all: many lists that are short take
/// as much room as one that is long.
pub fn together<R>(read: impl FnOnce() -> R) -> R {
    struct Before(Option<usize>);
    impl Drop for Before {
        fn drop(&mut self) {
            SEEN.set(self.0);
        }
    }
    let _before = Before(SEEN.replace(Some(0)));
    read()
}

/// The first of them, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounded<T, const MOST: usize> {
    kept: Vec<T>,
    count: usize,
}

impl<T, const MOST: usize> Bounded<T, MOST> {
    /// All of them, if there are no more than may be; else refused with `batch_too_large`.
    pub fn all(self) -> Result<Vec<T>> {
        if self.count > self.kept.len() {
            return Err(Error::BatchTooLarge { jobs: self.count, jobs_max: MOST });
        }
        Ok(self.kept)
    }

    /// One more, for whoever has them already.
    pub fn push(&mut self, one: T) {
        self.kept.push(one);
        self.count += 1;
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<T, const MOST: usize> Default for Bounded<T, MOST> {
    fn default() -> Self {
        Vec::new().into()
    }
}

/// Whoever has them already is not bounded: whoever reads them is.
impl<T, const MOST: usize> From<Vec<T>> for Bounded<T, MOST> {
    fn from(kept: Vec<T>) -> Self {
        Self { count: kept.len(), kept }
    }
}

impl<T: Serialize, const MOST: usize> Serialize for Bounded<T, MOST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.kept.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Bounded<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (kept, count) = AtMost::new(MOST).deserialize(deserializer)?;
        Ok(Self { kept, count })
    }
}

/// Reads a list: the first of its elements, and how many there are.
#[derive(Debug)]
pub struct AtMost<T> {
    most: usize,
    of: PhantomData<T>,
}

impl<T> AtMost<T> {
    /// Of a list of which so many are kept.
    pub fn new(most: usize) -> Self {
        Self { most, of: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for AtMost<T> {
    type Value = (Vec<T>, usize);

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<T> {
    type Value = (Vec<T>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut all: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < self.most && SEEN.get() < Some(TOGETHER_MAX) {
            let Some(one) = all.next_element()? else {
                let count = kept.len();
                return Ok((kept, count));
            };
            kept.push(one);
            SEEN.set(SEEN.get().map(|seen| seen + 1));
        }
        let mut beyond = 0;
        while all.next_element::<IgnoredAny>()?.is_some() {
            beyond += 1;
        }
        SEEN.set(SEEN.get().map(|seen| seen + beyond));
        if beyond == 0 {
            let count = kept.len();
            return Ok((kept, count));
        }
        // Where it is the other lists that left no room, it is of all of them that there are too many.
        let count = (kept.len() + beyond).max(SEEN.get().unwrap_or_default());
        Ok((kept, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_is_counted_and_not_read() {
        let read = |text| serde_json::from_str::<Bounded<u8, 2>>(text).unwrap();
        assert!(read("[]").all().unwrap().is_empty());
        assert_eq!(read("[1,2]").all().unwrap(), [1, 2]);
        let long = read(r#"[1,2,{"no":"number"},[4]]"#);
        assert_eq!(long, Bounded { kept: vec![1, 2], count: 4 });
        assert_eq!(long.all().unwrap_err().code(), "batch_too_large");
        assert!(serde_json::from_str::<Bounded<u8, 2>>("[1,{}]").is_err());
    }

    #[test]
    fn many_short_lists_keep_no_more_than_a_long_one() {
        type Lists = Vec<Bounded<u8, TOGETHER_MAX>>;
        let list = format!("[{}1]", "1,".repeat(TOGETHER_MAX / 2 - 1));
        let text = |lists: &[&str]| format!("[{}]", lists.join(","));
        let read = |lists: &[&str]| serde_json::from_str::<Lists>(&text(lists)).unwrap();
        let kept = |lists: Lists| lists.iter().map(|list| list.kept.len()).sum::<usize>();
        let full = together(|| read(&[&list, &list, "[]"]));
        assert!(full.into_iter().all(|list| list.all().is_ok()));
        let over = || together(|| read(&[&list, &list, "[1,1]", &list]));
        assert_eq!(kept(over()), TOGETHER_MAX);
        let refused = over().remove(2).all().unwrap_err();
        let said = Error::BatchTooLarge { jobs: TOGETHER_MAX + 2, jobs_max: TOGETHER_MAX };
        assert_eq!(refused.to_string(), said.to_string());
        assert_eq!(kept(read(&[&list, &list, &list])), TOGETHER_MAX / 2 * 3, "each by itself");
    }
}
