//! Who does something, and why.

/// Who does something to what others made, and why. A name alone is enough where nobody is asked for a reason.
///
/// ```
/// use tidemill_core::By;
/// assert_eq!(By::from("ada").why, None);
/// assert_eq!(By::from("ada").because("the airline is back").why, Some("the airline is back"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By<'a> {
    /// Who.
    pub who: &'a str,
    /// Why, if that was said.
    pub why: Option<&'a str>,
}

impl<'a> By<'a> {
    /// The same for this reason; one that says nothing is none.
    #[must_use]
    pub fn because(self, why: impl Into<Option<&'a str>>) -> Self {
        Self { why: why.into().filter(|why| !why.trim().is_empty()), ..self }
    }

    /// What was done, with the reason, as it is noted.
    pub fn note(&self, done: &str) -> String {
        self.why.map_or_else(|| done.to_owned(), |why| format!("{done}: {why}"))
    }
}

impl<'a> From<&'a str> for By<'a> {
    fn from(who: &'a str) -> Self {
        Self { who, why: None }
    }
}

impl<'a> From<&'a String> for By<'a> {
    fn from(who: &'a String) -> Self {
        who.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_says_nothing_is_none() {
        let by = By::from("ada");
        assert_eq!(by.because(" ").why, None);
        assert_eq!(by.because(None).note("replayed"), "replayed");
        assert_eq!(by.because("mended").note("replayed"), "replayed: mended");
    }
}
