//! Several things at once: joins, races, maps and scopes.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::workflow::{Answer, Ask, Ending, ParkCode};

use super::step::{read, write_large};
use super::{Op, Trouble};
use crate::worker::context::Context;
use crate::worker::fail::Fail;

/// Who won a race of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First<A, B> {
    /// The first one.
    A(A),
    /// The second one.
    B(B),
}

/// Who won a race of three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First3<A, B, C> {
    /// The first one.
    A(A),
    /// The second one.
    B(B),
    /// The third one.
    C(C),
}

/// Who won a race of four.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First4<A, B, C, D> {
    /// The first one.
    A(A),
    /// The second one.
    B(B),
    /// The third one.
    C(C),
    /// The fourth one.
    D(D),
}

/// Futures that can be joined or raced: tuples of two to four.
pub trait Race {
    /// All of their values.
    type All;
    /// The value of the winner.
    type Winner;
    /// Waits for all; then for the first error, if there is one.
    fn all(self) -> impl Future<Output = Result<Self::All, Fail>> + Send;
    /// Waits for the first; the others are dropped.
    fn first(self) -> impl Future<Output = Result<Self::Winner, Fail>> + Send;
}

macro_rules! race {
    ($first:ident, $join:path, $($name:ident $value:ident $future:ident),+) => {
        impl<$($name: Send, $future: Future<Output = Result<$name, Fail>> + Send),+> Race for ($($future,)+) {
            type All = ($($name,)+);
            type Winner = $first<$($name),+>;

            async fn all(self) -> Result<Self::All, Fail> {
                let ($($value,)+) = self;
                let ($($value,)+) = $join($($value),+).await;
                match Fail::first([$($value.as_ref().err()),+], usize::MAX) {
                    Some(fail) => Err(fail),
                    None => Ok(($($value?,)+)),
                }
            }

            async fn first(self) -> Result<Self::Winner, Fail> {
                let ($($value,)+) = self;
                $(let mut $value = pin!($value);)+
                poll_fn(|task| {
                    $(if let Poll::Ready(won) = $value.as_mut().poll(task) {
                        return Poll::Ready(won.map($first::$name));
                    })+
                    Poll::Pending
                })
                .await
            }
        }
    };
}

race!(First, futures::future::join, A a Fa, B b Fb);
race!(First3, futures::future::join3, A a Fa, B b Fb, C c Fc);
race!(First4, futures::future::join4, A a Fa, B b Fb, C c Fc, D d Fd);

impl Context {
    /// Waits for all of them, at once; if one fails, for the others too, and then returns the first error.
    pub fn join<R: Race>(
        &self,
        all: R,
    ) -> impl Future<Output = Result<R::All, Fail>> + Send + use<R> {
        all.all()
    }

    /// Waits for all of them, at once; if one fails, for the others too, and then returns the first error.
    pub async fn join_all<T, F>(&self, all: impl IntoIterator<Item = F>) -> Result<Vec<T>, Fail>
    where
        F: Future<Output = Result<T, Fail>>,
    {
        gathered(join_all(all).await, usize::MAX)
    }

    /// Waits for the first of them. Who won, with what, and that the others are dropped, is one write.
    pub fn race<R: Race>(
        &self,
        all: R,
    ) -> impl Future<Output = Result<R::Winner, Fail>> + Send + use<R> {
        all.first()
    }

    /// Does the same for many, at most `at_once` at a time; answers in their order. The next begins as soon as any one
    /// has ended. Each has a scope of its own: what it did takes the place of one entry in the journal when it has
    /// ended. If one fails, the others end first. A run that dies of that and whose dead letter is replayed tries again
    /// what failed, at most `at_once` items of it.
    pub async fn map<I, T, F, Fut>(
        &self,
        name: &str,
        items: I,
        at_once: usize,
        f: F,
    ) -> Result<Vec<T>, Fail>
    where
        I: IntoIterator,
        T: Serialize + DeserializeOwned,
        F: Fn(Context, I::Item) -> Fut,
        Fut: Future<Output = Result<T, Fail>>,
    {
        let key = self.next_key(name);
        let one = |(number, item): (usize, I::Item)| {
            let (cx, key) = (self.clone(), format!("{key}[{number}]"));
            let f = &f;
            async move { (number, scoped(&cx, key, |cx| f(cx, item)).await) }
        };
        let mut left = items.into_iter().enumerate().map(one);
        let (mut running, mut ended) = (FuturesUnordered::new(), Vec::new());
        poll_fn(|task| {
            loop {
                // One whose failure is left out, so that it can be tried again, had made room here.
                let places = at_once.max(1) + self.run().told().passed(&key, task.waker());
                running.extend(left.by_ref().take(places.saturating_sub(running.len())));
                match running.poll_next_unpin(task) {
                    Poll::Ready(Some(one)) => ended.push(one),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
        ended.sort_unstable_by_key(|(number, _)| *number);
        gathered(ended.into_iter().map(|(_, ended)| ended).collect(), at_once.max(1))
    }

    /// Does something whose names are its own. When it has ended, what it returned takes the place of all it did in the
    /// journal, so that long runs stay short.
    pub fn scope<T, F, Fut>(&self, name: &str, f: F) -> impl Future<Output = Result<T, Fail>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Context) -> Fut,
        Fut: Future<Output = Result<T, Fail>>,
    {
        let (cx, key) = (self.clone(), self.next_key(name));
        async move { scoped(&cx, key, f).await }
    }
}

/// All that was returned, or the first failure, as one of at most so many steps.
fn gathered<T>(all: Vec<Result<T, Fail>>, steps_max: usize) -> Result<Vec<T>, Fail> {
    match Fail::first(all.iter().map(|one| one.as_ref().err()), steps_max) {
        Some(fail) => Err(fail),
        None => all.into_iter().collect(),
    }
}

async fn scoped<T, F, Fut>(cx: &Context, key: String, f: F) -> Result<T, Fail>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = Result<T, Fail>>,
{
    let mut op = Op::new(cx, key.clone(), Ask::Scope);
    if let Answer::Ended(ending) = op.answer().await {
        return read(&op, ending).await;
    }
    // An error ends the handler, or is handled by it: only what went well is kept.
    let value = f(cx.within(&key)).await?;
    match write_large(&value) {
        Ok(payload) => {
            op.is_over = true;
            op.with(|replay, key| replay.ended(key, None, 1, 0, Ending::Ok(payload)));
            Ok(value)
        }
        Err(why) => {
            let why = format!("what {key:?} returned cannot be kept: {why}");
            op.stop(Trouble::park(ParkCode::ValueRefused, why)).await
        }
    }
}
