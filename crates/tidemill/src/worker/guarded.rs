//! A stranger's future that cannot take its attempt down: it may panic when it is polled, and when it is dropped.
//!
//! A handler that runs too long, that does not listen, or whose run waits is dropped where it stands, and what it holds
//! may panic at that. The attempt has come to something by then, and that stands: a job whose attempt was lost with a
//! panic would be held for as long as its worker beats.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::worker::registry::panic_message;

/// What a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;

/// The future stands where its owner has pinned it, so that none is put into a box for this; here it is dropped.
pub(crate) struct Guarded<'a, F>(Pin<&'a mut Option<F>>);

impl<'a, F> Guarded<'a, F> {
    pub(crate) fn new(work: Pin<&'a mut Option<F>>) -> Self {
        Self(work)
    }
}

impl<F: Future> Future for Guarded<'_, F> {
    type Output = Result<F::Output, Panic>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.0.as_mut().as_pin_mut() else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| work.poll(task))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

impl<F> Drop for Guarded<'_, F> {
    fn drop(&mut self) {
        let dropped = catch_unwind(AssertUnwindSafe(|| self.0.set(None)));
        if let Err(panic) = dropped {
            tracing::warn!("when it was dropped, {}", panic_message(panic.as_ref()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a bomb");
        }
    }

    /// Holds a bomb, also when it has ended.
    struct Held(Poll<u8>, Bomb);

    impl Future for Held {
        type Output = u8;

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u8> {
            self.0
        }
    }

    #[test]
    fn what_panics_when_it_is_dropped_has_come_to_what_it_came_to() {
        for (polled, expected) in [(Poll::Ready(7), Some(7)), (Poll::Pending, None)] {
            let work = pin!(Some(Held(polled, Bomb)));
            let came = Guarded::new(work).now_or_never();
            assert_eq!(came.map(Result::unwrap), expected);
        }
    }

    #[test]
    fn what_panics_when_it_is_polled_says_so() {
        let work = pin!(Some(async { panic!("out of luck") }));
        let came: Option<Result<(), Panic>> = Guarded::new(work).now_or_never();
        let panic = came.and_then(Result::err).unwrap();
        assert_eq!(panic_message(panic.as_ref()), "the handler panicked: out of luck");
    }
}
