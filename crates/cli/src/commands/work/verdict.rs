//! What an exit code means. The table is part of the interface: `docs/cli.md` has it too.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use tidemill::Fail;

use super::stderr::Said;

const RATE_LIMIT_DELAY: Duration = Duration::from_secs(10);
const SNOOZE_DELAY: Duration = Duration::from_mins(1);

/// What the command's end says of its job; `None` when it is done.
pub fn failure(status: ExitStatus, said: &Said) -> Option<Fail> {
    let Some(code) = status.code() else {
        let signal = status.signal().unwrap_or_default();
        let message = format!("the command was killed by signal {signal}");
        return Some(with_delay(Fail::ambiguous(said.message(&message)), said));
    };
    let message = said.message(&format!("the command ended with exit code {code}"));
    Some(match code {
        0 => return None,
        64 | 65 | 78 | 100 => Fail::permanent(message),
        76 => Fail::rate_limited(said.retry_after.unwrap_or(RATE_LIMIT_DELAY)),
        79 => Fail::snooze(said.retry_after.unwrap_or(SNOOZE_DELAY)),
        80 => Fail::cancel(message),
        102 => Fail::in_doubt(message),
        // 101 is also how a Rust program ends when it panics; a shell tells of signals by 128 + n.
        101 | 129..=159 => with_delay(Fail::ambiguous(message), said),
        _ => with_delay(Fail::transient(message), said),
    })
}

fn with_delay(fail: Fail, said: &Said) -> Fail {
    match said.retry_after {
        Some(delay) => fail.retry_after(delay),
        None => fail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill::ErrorClass::{Ambiguous, InDoubt, Permanent, RateLimited, Transient};

    #[test]
    fn exit_codes_have_their_documented_class() {
        for (code, class) in [
            (1, Some(Transient)),
            (75, Some(Transient)),
            (127, Some(Transient)),
            (64, Some(Permanent)),
            (65, Some(Permanent)),
            (78, Some(Permanent)),
            (100, Some(Permanent)),
            (76, Some(RateLimited)),
            (101, Some(Ambiguous)),
            (102, Some(InDoubt)),
            (137, Some(Ambiguous)),
            (79, None),
            (80, None),
        ] {
            let status = ExitStatus::from_raw(code << 8);
            let fail = failure(status, &Said::default()).expect("not done");
            assert_eq!(fail.class(), class, "{code}");
        }
        assert_eq!(failure(ExitStatus::from_raw(0), &Said::default()), None);
        let killed = failure(ExitStatus::from_raw(9), &Said::default());
        assert_eq!(killed.and_then(|fail| fail.class()), Some(Ambiguous));
    }
}
