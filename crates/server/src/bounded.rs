//! A list in a body of which no more is kept than it may have: what is beyond is counted, and refused by whoever knows
//! what it is.
//!
//! A small text may say a great many things, each of which takes a hundred times as much room as its letters.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::problem::Answer;

/// The first of them, and how many there are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bounded<T, const MOST: usize> {
    kept: Vec<T>,
    count: usize,
}

impl<T, const MOST: usize> Bounded<T, MOST> {
    /// All of them, if there are no more than may be.
    pub(crate) fn all(self) -> Answer<Vec<T>> {
        if self.count > MOST {
            let (jobs, jobs_max) = (self.count, MOST);
            return Err(tidemill_core::Error::BatchTooLarge { jobs, jobs_max }.into());
        }
        Ok(self.kept)
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Bounded<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Reader(PhantomData))
    }
}

struct Reader<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Reader<T, MOST> {
    type Value = Bounded<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < MOST {
            let Some(one) = all.next_element()? else {
                return Ok(Bounded { count: kept.len(), kept });
            };
            kept.push(one);
        }
        let mut count = kept.len();
        while all.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Bounded { kept, count })
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
        assert_eq!(long.all().unwrap_err().told().0, "batch_too_large");
        assert!(serde_json::from_str::<Bounded<u8, 2>>("[1,{}]").is_err());
    }
}
