//! What is not to be seen: fields of payloads and outputs by name, and their values wherever else they turn up.
//!
//! A rule names a field, at whatever depth (`password`), or the end of a path to one (`card.number`, `*.token`). Where
//! JSON is shown, such fields show [`HIDDEN`]. Text has no fields, but the job that wrote it has: what its payload
//! keeps in such fields is hidden in its errors and in what it says. Handlers are given everything.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// What is shown instead.
pub const HIDDEN: &str = "[hidden]";
/// The most rules.
pub const RULES_MAX: usize = 100;
/// Fields of our own documents whose values are the jobs': what they were given, returned, keep and were told, and what
/// somebody has made of that.
pub const THEIRS: [&str; 12] = [
    "payload", "output", "outputs", "inputs", "entry", "entries", "value", "state", "mail",
    "answer", "was", "became",
];
/// Objects and lists around a value, in what is looked at; payloads are not as deep, nor is what they stand in.
const DEPTH_MAX: usize = 128;
/// Shorter values are not looked for in text: they would be found everywhere.
const SECRET_CHARS_MIN: usize = 4;

/// Which fields are hidden. Cheap to ask where there are no rules.
///
/// ```
/// use tidemill_core::redact::Redaction;
/// let rules = Redaction::parse(["password", "card.number"])?;
/// let payload = r#"{"user":"ada","password":"tulips","card":{"number":"4111111111111111"}}"#;
/// assert_eq!(rules.json(payload),
///     r#"{"user":"ada","password":"[hidden]","card":{"number":"[hidden]"}}"#);
/// assert_eq!(rules.secrets(payload).hide("no tulips for ada"), "no [hidden] for ada");
/// # Ok::<(), tidemill_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redaction(Vec<Rule>);

/// The end of a path, its last name first; `None` is any name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule(Vec<Option<String>>);

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let part = |part: &str| match part {
            "*" => Some(None),
            // Patterns and paths of other tongues: taken for a name, they would hide nothing.
            "" | "$" => None,
            name if name.contains(['*', '[', ']']) => None,
            name => Some(Some(name.to_lowercase())),
        };
        let parts: Option<Vec<_>> = text.trim().rsplit('.').map(part).collect();
        parts.filter(|parts| parts.first().is_some_and(Option::is_some)).map(Self)
    }

    /// Whether a path goes through what it means. Positions in lists are no names for a rule, but may be for a path:
    /// one is passed over, or taken for a name, whichever hides more.
    fn is_met<'p>(&self, path: impl Iterator<Item = &'p str>) -> bool {
        let parts: Vec<_> = self.0.iter().rev().collect();
        // So many names of the rule were met, one after the other.
        let mut met = vec![false; parts.len() + 1];
        for name in path {
            met[0] = true;
            let is_position = is_position(name);
            let lower = name.to_lowercase();
            for at in (0..parts.len()).rev() {
                if met[at] && parts[at].as_ref().is_none_or(|part| *part == lower) {
                    met[at + 1] = true;
                }
                met[at] &= is_position;
            }
            if met[parts.len()] {
                return true;
            }
        }
        false
    }

    fn means(&self, path: &[&str]) -> bool {
        let names = path.iter().rev();
        self.0.len() <= path.len()
            && self
                .0
                .iter()
                .zip(names)
                .all(|(rule, name)| rule.as_ref().is_none_or(|rule| *rule == name.to_lowercase()))
    }
}

impl Redaction {
    /// Rules from their texts. Case does not matter.
    pub fn parse<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut all = Vec::new();
        for text in rules {
            let rule = Rule::parse(text).ok_or_else(|| Error::RedactionInvalid {
                reason: format!(
                    "{text:?} names no field; `password`, `card.number` or `*.token` would"
                ),
            })?;
            all.push(rule);
        }
        if all.len() > RULES_MAX {
            let reason = format!("{} rules are more than {RULES_MAX}", all.len());
            return Err(Error::RedactionInvalid { reason });
        }
        Ok(Self(all))
    }

    /// Whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses to look for a hidden value: who may not see it could try one after the other. A whole object or list
    /// may have one in it. Stores take some signs in a path for more than the letters of a name.
    pub fn check_search(&self, path: &str, value: &str) -> Result<()> {
        let is_hidden = self.0.iter().any(|rule| rule.is_met(path.split('.')));
        let is_open =
            path.contains(['"', '\\', '[', ']']) || value.trim_start().starts_with(['{', '[']);
        if is_hidden || is_open && !self.is_empty() {
            return Err(Error::SearchHidden { path: path.to_owned() });
        }
        Ok(())
    }

    /// A JSON text as it may be shown: as it is written, but for what is hidden. What is no JSON is shown not at all,
    /// if there are rules.
    pub fn json<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.shown(text, true)
    }

    /// The same for a document about jobs: only what is theirs in it ([`THEIRS`]) is looked at, not what it says.
    pub fn document<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.shown(text, false)
    }

    fn shown<'t>(&self, text: &'t str, is_theirs: bool) -> Cow<'t, str> {
        if self.is_empty() {
            return Cow::Borrowed(text);
        }
        let (out, path) = (String::new(), Vec::new());
        let mut page = Page { rules: self, out, path, depth: 0, is_hidden: false };
        match page.write(text, is_theirs) {
            Ok(()) if page.is_hidden => Cow::Owned(page.out),
            Ok(()) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(quoted(HIDDEN)),
        }
    }

    /// Whether a field is hidden to which these names lead.
    fn hides(&self, path: &[String]) -> bool {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        self.0.iter().any(|rule| rule.means(&names))
    }

    /// What a payload keeps in such fields.
    pub fn secrets(&self, payload: &str) -> Secrets {
        if self.is_empty() {
            return Secrets::default();
        }
        let mut all = Vec::new();
        // What cannot be read may keep anything.
        let is_read = self.gather(payload, &mut Vec::new(), (0, false), &mut all).is_ok();
        all.retain(|secret| secret.chars().count() >= SECRET_CHARS_MIN);
        // The longest first: one may be a part of another.
        all.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        all.dedup();
        Secrets { all, everything: !is_read }
    }

    /// Gathers the texts and numbers in hidden fields. Numbers are taken as they are written: one that is too large
    /// for a type of ours hides nothing else.
    fn gather(
        &self,
        text: &str,
        path: &mut Vec<String>,
        (depth, is_hidden): (usize, bool),
        all: &mut Vec<String>,
    ) -> serde_json::Result<()> {
        let (text, inner) = (text.trim(), depth + 1);
        check_depth(text, inner)?;
        match text.as_bytes().first() {
            Some(b'{') => {
                for (name, field) in serde_json::from_str::<Fields<'_>>(text)?.0 {
                    path.push(name);
                    let is_hidden = is_hidden || self.hides(path);
                    self.gather(field.get(), path, (inner, is_hidden), all)?;
                    path.pop();
                }
            }
            Some(b'[') => {
                for one in serde_json::from_str::<Vec<&RawValue>>(text)? {
                    self.gather(one.get(), path, (inner, is_hidden), all)?;
                }
            }
            Some(b'"') => {
                let text = serde_json::from_str::<String>(text)?;
                all.extend(is_hidden.then_some(text));
            }
            _ => {
                serde_json::from_str::<&RawValue>(text)?;
                if is_hidden && !matches!(text, "null" | "true" | "false") {
                    all.push(text.to_owned());
                    // As a handler that has read it would write it.
                    let read = serde_json::from_str::<Value>(text);
                    all.extend(read.map(|number| number.to_string()));
                }
            }
        }
        Ok(())
    }
}

/// A text that is written anew without what is hidden. Values are copied as they stand: a number that is too large for
/// a type of ours hides nothing.
struct Page<'r> {
    rules: &'r Redaction,
    out: String,
    /// The names that lead to where it is, from what is the jobs' on.
    path: Vec<String>,
    /// Objects and lists around where it is.
    depth: usize,
    is_hidden: bool,
}

impl Page<'_> {
    fn write(&mut self, text: &str, is_theirs: bool) -> serde_json::Result<()> {
        let text = text.trim();
        self.depth += 1;
        check_depth(text, self.depth)?;
        match text.as_bytes().first() {
            Some(b'{') => {
                let fields = serde_json::from_str::<Fields<'_>>(text)?.0;
                self.out.push('{');
                for (number, (name, field)) in fields.into_iter().enumerate() {
                    self.part(number);
                    self.out.push_str(&quoted(&name));
                    self.out.push(':');
                    self.field(name, field.get(), is_theirs)?;
                }
                self.out.push('}');
            }
            Some(b'[') => {
                let all = serde_json::from_str::<Vec<&RawValue>>(text)?;
                self.out.push('[');
                for (number, one) in all.into_iter().enumerate() {
                    self.part(number);
                    self.write(one.get(), is_theirs)?;
                }
                self.out.push(']');
            }
            _ => self.out.push_str(serde_json::from_str::<&RawValue>(text)?.get()),
        }
        self.depth -= 1;
        Ok(())
    }

    fn part(&mut self, number: usize) {
        if number > 0 {
            self.out.push(',');
        }
    }

    fn field(&mut self, name: String, text: &str, is_theirs: bool) -> serde_json::Result<()> {
        if !is_theirs && !THEIRS.contains(&name.as_str()) {
            return self.write(text, false);
        }
        self.path.push(name);
        // What is theirs begins behind the name that says so.
        if is_theirs && self.rules.hides(&self.path) {
            self.out.push_str(&quoted(HIDDEN));
            self.is_hidden = true;
        } else {
            self.write(text, true)?;
        }
        self.path.pop();
        Ok(())
    }
}

/// Whether a store may take this for a place in a list; from its end, too.
fn is_position(name: &str) -> bool {
    let digits = name.trim().trim_start_matches(['+', '-', '#']);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Refuses what is deeper than can be: it is read level by level, and would take the whole stack.
fn check_depth(text: &str, depth: usize) -> serde_json::Result<()> {
    if depth > DEPTH_MAX && text.starts_with(['{', '[']) {
        return Err(serde::de::Error::custom("it is too deep"));
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The fields of an object, in order, also those that are named twice, with their values as they are written.
struct Fields<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(Self(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Fields<'de> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(
        mut self,
        mut fields: A,
    ) -> std::result::Result<Self, A::Error> {
        while let Some(field) = fields.next_entry()? {
            self.0.push(field);
        }
        Ok(self)
    }
}

/// Values that are hidden in text. It refuses to show them.
#[derive(Clone, Default)]
pub struct Secrets {
    all: Vec<String>,
    /// Nobody knows what they are: all text may have them.
    everything: bool,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({}, everything: {})", self.all.len(), self.everything)
    }
}

impl Secrets {
    /// A text as it may be shown.
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.everything && !text.is_empty() {
            return Cow::Borrowed(HIDDEN);
        }
        let mut hidden = Cow::Borrowed(text);
        for secret in &self.all {
            if hidden.contains(secret.as_str()) {
                hidden = Cow::Owned(hidden.replace(secret.as_str(), HIDDEN));
            }
        }
        hidden
    }

    /// The same for a text that is one's own.
    pub fn hide_in(&self, text: &mut String) {
        let hidden = self.hide(text);
        if hidden != text.as_str() {
            *text = hidden.into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_mean_the_ends_of_paths() {
        for (rule, text, shown) in [
            ("password", r#"{"a":{"Password":1}}"#, r#"{"a":{"Password":"[hidden]"}}"#),
            (
                "card.number",
                r#"{"number":1,"card":{"number":2}}"#,
                r#"{"number":1,"card":{"number":"[hidden]"}}"#,
            ),
            ("cards.number", r#"{"cards":[{"number":1}]}"#, r#"{"cards":[{"number":"[hidden]"}]}"#),
            (
                "*.token",
                r#"{"token":1,"a":{"token":[2]}}"#,
                r#"{"token":1,"a":{"token":"[hidden]"}}"#,
            ),
            ("a", r#"{"b": 1e400}"#, r#"{"b": 1e400}"#),
            (
                "a",
                r#"{"b": 1e400, "a": [1e400], "c": 0.10}"#,
                r#"{"b":1e400,"a":"[hidden]","c":0.10}"#,
            ),
            ("a", r#"{"é\"": {"a": 1}}"#, r#"{"é\"":{"a":"[hidden]"}}"#),
            ("a", r#"{"b": 1e}"#, r#""[hidden]""#),
            ("a", r#"{ "b": 12345678901234567890123 }"#, r#"{ "b": 12345678901234567890123 }"#),
            ("a", "no json", r#""[hidden]""#),
        ] {
            assert_eq!(Redaction::parse([rule]).unwrap().json(text), shown, "{rule}");
        }
        assert_eq!(Redaction::default().json("no json"), "no json");
    }

    #[test]
    fn of_a_document_only_what_is_the_jobs_is_hidden() {
        let rules = Redaction::parse(["token", "output.name"]).unwrap();
        let text = r#"{"token":7,"jobs":[{"payload":{"token":1,"name":2},"output":{"name":3}}]}"#;
        let shown = r#"{"token":7,"jobs":[{"payload":{"token":"[hidden]","name":2},"output":{"name":"[hidden]"}}]}"#;
        assert_eq!(rules.document(text), shown);
    }

    #[test]
    fn values_are_hidden_wherever_they_turn_up() {
        let rules = Redaction::parse(["secret", "pin"]).unwrap();
        let secrets =
            rules.secrets(r#"{"secret":["tulips","tulips and roses",12345],"pin":"123"}"#);
        assert_eq!(
            secrets.hide("tulips and roses, tulips, 12345, 123"),
            "[hidden], [hidden], [hidden], 123"
        );
        assert!(!format!("{secrets:?}").contains("tulips"));
    }

    #[test]
    fn numbers_beyond_our_types_let_no_value_be_seen() {
        let rules = Redaction::parse(["password", "pin"]).unwrap();
        let payload =
            r#"{"n":1e999,"password":"tulips","pin":12345678901234567890123,"pin":[1e3]}"#;
        let secrets = rules.secrets(payload);
        let text = "tulips, 12345678901234567890123, 1000.0";
        assert_eq!(secrets.hide(text), "[hidden], [hidden], [hidden]");
        for payload in ["no json", "{\"password\":\"tulips\"", "", "[1,]"] {
            let secrets = rules.secrets(payload);
            let mut text = "no tulips".to_owned();
            secrets.hide_in(&mut text);
            assert_eq!((text.as_str(), &*secrets.hide("")), (HIDDEN, ""), "{payload}");
        }
        assert_eq!(Redaction::default().secrets("no json").hide("tulips"), "tulips");
    }

    #[test]
    fn what_is_too_deep_to_be_read_is_not_shown() {
        let rules = Redaction::parse(["password"]).unwrap();
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"[{"a":"#, "}]")] {
            let deep = |levels| format!("{}7{}", open.repeat(levels), close.repeat(levels));
            assert_eq!(rules.json(&deep(60)), deep(60));
            assert_eq!(rules.json(&deep(100_000)), r#""[hidden]""#);
            assert_eq!(rules.document(&deep(100_000)), r#""[hidden]""#);
            assert_eq!(rules.secrets(&deep(100_000)).hide("tulips"), HIDDEN);
        }
    }

    #[test]
    fn what_is_hidden_is_not_looked_for() {
        let rules = Redaction::parse(["password", "card.number"]).unwrap();
        for path in ["password", "user.Password", "password.old", "card.number", "a.card.number"] {
            assert!(rules.check_search(path, "x").is_err(), "{path}");
        }
        // Of {"card": [{"number": …}]}, and as stores read names.
        for path in ["card.0.number", "card.-1.number", "card.0. +1.number", "a.0.password"] {
            assert!(rules.check_search(path, "x").is_err(), "{path}");
        }
        for path in [r"pass\u0077ord", r#"a"[0]."b"#, "a[0]", "card[0].number"] {
            assert!(rules.check_search(path, "x").is_err(), "{path}");
            assert!(Redaction::default().check_search(path, "x").is_ok(), "{path}");
        }
        let deep = Redaction::parse(["a.*.b"]).unwrap();
        for (path, is_hidden) in
            [("a.x.b", true), ("a.0.b", true), ("a.0.x.1.b", true), ("a.x.y.b", false)]
        {
            assert_eq!(deep.check_search(path, "x").is_err(), is_hidden, "{path}");
        }
        for path in ["user.id", "number", "cards.number", "cards.0.number", "7"] {
            assert!(rules.check_search(path, "x").is_ok(), "{path}");
            assert!(rules.check_search(path, r#" {"password":"x"}"#).is_err(), "{path}");
        }
        assert!(Redaction::default().check_search("password", "{}").is_ok());
    }

    #[test]
    fn rules_that_name_nothing_are_refused() {
        for wrong in ["", " ", "a..b", "a.*", ".", "pass*", "$.password", "a[0]", "b.*c"] {
            assert!(Redaction::parse([wrong]).is_err(), "{wrong:?}");
        }
        assert!(Redaction::parse((0..=RULES_MAX).map(|_| "a")).is_err());
    }
}
