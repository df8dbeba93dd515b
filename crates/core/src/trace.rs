//! W3C Trace Context, as far as it travels with a job: `00-<trace>-<span>-<flags>`.

use std::fmt;
use std::str::FromStr;

/// Whose work a job is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: u128,
    /// The span that enqueued.
    pub span: u64,
    /// Whether the trace is kept, in its lowest bit.
    pub flags: u8,
}

/// It is no trace context; by the standard it is then passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTraceParent;

impl FromStr for TraceParent {
    type Err = NoTraceParent;

    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        let mut parts = text.trim().split('-');
        let mut next = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits).ok_or(NoTraceParent)?;
            let is_hex = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if is_hex { Ok(part) } else { Err(NoTraceParent) }
        };
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // A later version may say more behind it; this one may not.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(NoTraceParent);
        }
        let found = Self {
            trace: u128::from_str_radix(trace, 16).map_err(|_| NoTraceParent)?,
            span: u64::from_str_radix(span, 16).map_err(|_| NoTraceParent)?,
            flags: u8::from_str_radix(flags, 16).map_err(|_| NoTraceParent)?,
        };
        if found.trace == 0 || found.span == 0 { Err(NoTraceParent) } else { Ok(found) }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_context_survives_being_written_and_read() {
        let read: TraceParent = GOOD.parse().unwrap();
        assert_eq!((read.to_string().as_str(), read.flags), (GOOD, 1));
        let later = format!("01{}-what-comes", &GOOD[2..]);
        assert_eq!(later.parse(), Ok(read), "a later version says more");
    }

    #[test]
    fn what_the_standard_passes_over_is_none() {
        let zero_trace = format!("00-{:032x}-b7ad6b7169203331-01", 0);
        let zero_span = format!("00-0af7651916cd43dd8448eb211c80319c-{:016x}-01", 0);
        for bad in [
            "",
            "00",
            "x",
            &GOOD[1..],
            &GOOD.to_uppercase(),
            &format!("ff{}", &GOOD[2..]),
            &format!("{GOOD}-more"),
            &zero_trace,
            &zero_span,
        ] {
            assert_eq!(bad.parse::<TraceParent>(), Err(NoTraceParent), "{bad}");
        }
    }
}
