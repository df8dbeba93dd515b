//! What a server and its clients say to each other, where that is not a view: one struct for both sides, so that
//! neither can mean something else.
//!
//! It refuses fields it does not know in what is asked; answers may grow.

pub mod run;
pub mod work;

use crate::bounded::{Bounded, TOGETHER_MAX};
use crate::wish::Wish;

/// Jobs that a worker brings, with a report or while an attempt runs.
pub type Brought = Bounded<Wish, TOGETHER_MAX>;
