//! What makes two jobs the same, for how long, and what the second one gets.
//!
//! A key is given, or derived from the kind and chosen inputs by BLAKE3 over canonical JSON
//! (keys sorted, no spaces), so that the same work has the same key in every process.
//! Keys are of a tenant: that of a job which has one is told apart from all others, so that none takes over another's.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::limit::UNIQUE_KEY_BYTES_MAX;
use crate::name;
use crate::payload::Payload;

/// How long a key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Scope {
    /// Until the job has finished. The default.
    #[default]
    Unfinished,
    /// For a period from the enqueue.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    Period(Duration),
    /// For ever.
    Forever,
}

impl Scope {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Period(_) => "period",
            Self::Forever => "forever",
        }
    }

    /// The period in milliseconds, if it has one.
    pub fn period_ms(self) -> Option<i64> {
        match self {
            Self::Period(period) => Some(i64::try_from(period.as_millis()).unwrap_or(i64::MAX)),
            _ => None,
        }
    }
}

/// What a duplicate gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OnDuplicate {
    /// Nothing is enqueued; the receipt says so and names the other. The default.
    #[default]
    Reject,
    /// The existing job, whose result may be awaited.
    Join,
    /// The waiting job takes over the new payload, due time and wishes; a running one, or a workflow that has begun, is
    /// joined.
    Replace,
    /// As `Replace`, the due time starts anew; while it runs, one more is kept for afterwards.
    Debounce,
    /// At most one in a period: others in it join the first.
    Throttle,
    /// A waiting job is joined; while it runs, exactly one more is kept for afterwards.
    RunOnceMore,
}

impl OnDuplicate {
    /// All policies.
    pub const ALL: [Self; 6] = [
        Self::Reject,
        Self::Join,
        Self::Replace,
        Self::Debounce,
        Self::Throttle,
        Self::RunOnceMore,
    ];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Join => "join",
            Self::Replace => "replace",
            Self::Debounce => "debounce",
            Self::Throttle => "throttle",
            Self::RunOnceMore => "run_once_more",
        }
    }
}

impl std::str::FromStr for OnDuplicate {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|p| p.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "policy for duplicates",
            value: word.to_owned(),
            known: "reject, join, replace, debounce, throttle, run_once_more",
        })
    }
}

/// What the key is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum By {
    Given(String),
    Payload,
    Fields(Vec<String>),
    Print(String),
    Parts(Vec<String>),
}

/// Stands before the tenant in a key, and before each of its parts. Names have no such character, so no name that is
/// given can pass for what stands behind it.
const APART: char = '\u{1f}';

/// A wish to be unique, before its key is known.
///
/// ```
/// use std::time::Duration;
/// use tidemill_core::{OnDuplicate, Unique};
/// let once_an_hour = Unique::by_fields(["user"]).throttle(Duration::from_secs(3600));
/// let the_order = Unique::by_key("order:42").on_duplicate(OnDuplicate::Join).forever();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unique {
    by: By,
    scope: Scope,
    on_duplicate: OnDuplicate,
    force: bool,
    within: Vec<String>,
}

impl Unique {
    fn new(by: By) -> Self {
        let (scope, on_duplicate) = (Scope::default(), OnDuplicate::default());
        Self { by, scope, on_duplicate, force: false, within: Vec::new() }
    }

    /// Same kind and same given key.
    pub fn by_key(key: impl Into<String>) -> Self {
        Self::new(By::Given(key.into()))
    }

    /// Same kind and same payload.
    pub fn by_payload() -> Self {
        Self::new(By::Payload)
    }

    /// Same kind and same values of these fields of the payload.
    pub fn by_fields<S: Into<String>>(fields: impl IntoIterator<Item = S>) -> Self {
        Self::new(By::Fields(fields.into_iter().map(Into::into).collect()))
    }

    /// Same kind and same print of what it was derived from, by another process with this library.
    pub fn by_print(print: impl Into<String>) -> Self {
        Self::new(By::Print(print.into()))
    }

    /// Same kind and the same parts, in this order. No key that is given is the same as one of parts: whoever serves
    /// others has keys of its own by it.
    pub fn by_parts<S: Into<String>>(parts: impl IntoIterator<Item = S>) -> Self {
        Self::new(By::Parts(parts.into_iter().map(Into::into).collect()))
    }

    /// What a duplicate gets. Defaults to `Reject`.
    #[must_use]
    pub fn on_duplicate(self, on_duplicate: OnDuplicate) -> Self {
        Self { on_duplicate, ..self }
    }

    /// How long the key is held. Defaults to `Unfinished`.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Held for a period from the enqueue.
    #[must_use]
    pub fn for_period(self, period: Duration) -> Self {
        self.scope(Scope::Period(period))
    }

    /// Held for ever.
    #[must_use]
    pub fn forever(self) -> Self {
        self.scope(Scope::Forever)
    }

    /// At most one in each period.
    #[must_use]
    pub fn throttle(self, period: Duration) -> Self {
        self.scope(Scope::Period(period)).on_duplicate(OnDuplicate::Throttle)
    }

    /// Enqueue although the key is held, and take the key over: the same work again, on purpose.
    #[must_use]
    pub fn force(self) -> Self {
        Self { force: true, ..self }
    }

    /// Only jobs of these queues, by name or pattern, may stand for it or be changed by it; none means all. Where the
    /// key is held by another, nothing is enqueued (`duplicate_rejected`; in a transaction of one's own, a receipt that
    /// names nobody). For those who enqueue for others, who may not touch every queue.
    #[must_use]
    pub fn within<S: Into<String>>(self, queues: impl IntoIterator<Item = S>) -> Self {
        Self { within: queues.into_iter().map(Into::into).collect(), ..self }
    }

    /// Whether a job that holds the key may be another afterwards, or hold it no more.
    pub fn changes_holder(&self) -> bool {
        let changes_nothing = matches!(
            self.on_duplicate,
            OnDuplicate::Reject | OnDuplicate::Join | OnDuplicate::Throttle
        );
        self.force || !changes_nothing
    }

    /// Makes the key for a job of this kind and tenant with this payload.
    pub fn resolve(
        &self,
        kind: &str,
        tenant: Option<&str>,
        payload: &Payload,
    ) -> Result<UniqueKey> {
        let mut key = match &self.by {
            By::Given(key) => {
                name::check_value("unique key", key, UNIQUE_KEY_BYTES_MAX)?;
                UniqueKey::given(kind, key)
            }
            By::Payload => UniqueKey::derived(kind, &print(&parse(payload)?)),
            By::Fields(fields) => {
                UniqueKey::derived(kind, &print(&chosen(&parse(payload)?, fields)?))
            }
            By::Print(print) if is_print(print) => UniqueKey::derived(kind, print),
            By::Print(print) => {
                let reason = format!("{print:?} is no print: it has {PRINT_DIGITS} digits of hex");
                return Err(Error::WishContradiction { reason });
            }
            By::Parts(parts) => {
                let mut key = String::new();
                for part in parts {
                    if !part.is_empty() {
                        name::check_value("unique key", part, UNIQUE_KEY_BYTES_MAX)?;
                    }
                    key.push(APART);
                    key.push_str(part);
                }
                UniqueKey::given(kind, &key)
            }
        };
        if let Some(tenant) = tenant {
            key.push(APART);
            key.push_str(tenant);
        }
        let Self { scope, on_duplicate, force, .. } = *self;
        if scope.period_ms() == Some(0) {
            let reason = "0 would hold it for no time at all; give at least 1 ms".to_owned();
            return Err(Error::RuleInvalid { rule: "the scope of the unique key", reason });
        }
        let within = self.within.clone();
        Ok(UniqueKey { key, scope, on_duplicate, force, together: false, within })
    }
}

/// A unique key and what it means, as the store gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UniqueKey {
    /// The key in the store's words.
    pub key: String,
    /// How long it is held.
    pub scope: Scope,
    /// What a duplicate gets.
    pub on_duplicate: OnDuplicate,
    /// Enqueue although it is held.
    pub force: bool,
    /// Of those of its batch that say so, all are duplicates or none is; else nothing of the batch is written.
    #[serde(skip)]
    pub together: bool,
    /// Only jobs of these queues, by name or pattern, may stand for it or be changed by it; none means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
}

impl UniqueKey {
    /// How a given key of a job without a tenant is kept; the SQL view builds the same text.
    pub fn given(kind: &str, key: &str) -> String {
        format!("{kind}={key}")
    }

    /// How a derived one is kept.
    fn derived(kind: &str, print: &str) -> String {
        format!("{kind}#{print}")
    }

    /// The key without what says whose it is, and the rest.
    pub fn split(key: &str) -> (&str, &str) {
        key.split_at(key.find(APART).unwrap_or(key.len()))
    }

    /// A key as it was given, for people: without the kind and the tenant, which stand beside it. One that was derived
    /// is its print behind a `#`; of one that has parts, they stand one behind the other.
    pub fn shown(key: &str, kind: &str, tenant: Option<&str>) -> String {
        let of_all = tenant.and_then(|tenant| key.strip_suffix(tenant)?.strip_suffix(APART));
        let key = of_all.unwrap_or(key);
        let own = match key.strip_prefix(kind) {
            Some(rest) if rest.starts_with('#') && is_print(&rest[1..]) => rest,
            Some(rest) => rest.strip_prefix('=').unwrap_or(key),
            None => key,
        };
        let parts: Vec<&str> = own.split(APART).filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    }

    /// What it was made of, for a job of this kind.
    pub fn made(&self, kind: &str) -> Made<'_> {
        // Neither what is given nor a print has a character that stands before a tenant.
        let (of_all, _) = Self::split(&self.key);
        match of_all.strip_prefix(kind) {
            Some(rest) if rest.starts_with('#') && is_print(&rest[1..]) => Made::Print(&rest[1..]),
            Some(rest) if rest.starts_with('=') => Made::Given(&rest[1..]),
            _ => Made::Given(&self.key),
        }
    }
}

/// What a unique key was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made<'a> {
    /// A key that was given.
    Given(&'a str),
    /// Something of its payload, which has this print.
    Print(&'a str),
}

impl<'a> Made<'a> {
    /// The key that was given, if one was.
    pub fn given(self) -> Option<&'a str> {
        match self {
            Self::Given(key) => Some(key),
            Self::Print(_) => None,
        }
    }

    /// The print, if it was derived.
    pub fn print(self) -> Option<&'a str> {
        match self {
            Self::Given(_) => None,
            Self::Print(print) => Some(print),
        }
    }
}

const PRINT_DIGITS: usize = 32;

fn is_print(text: &str) -> bool {
    text.len() == PRINT_DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn parse(payload: &Payload) -> Result<Value> {
    payload.read().map_err(|e| Error::PayloadNotJson { reason: e.to_string() })
}

fn chosen(payload: &Value, fields: &[String]) -> Result<Value> {
    fields
        .iter()
        .map(|field| {
            let value = payload.get(field).cloned();
            value.ok_or_else(|| Error::UniqueFieldMissing { field: field.clone() })
        })
        .collect()
}

/// `serde_json` keeps objects sorted by key and writes no spaces: its text is canonical.
fn print(inputs: &Value) -> String {
    let hash = blake3::hash(inputs.to_string().as_bytes());
    hash.to_hex()[..PRINT_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limits;

    fn key(unique: &Unique, kind: &str, payload: &str) -> String {
        let payload = Payload::parse(payload, &Limits::default()).unwrap();
        unique.resolve(kind, None, &payload).unwrap().key
    }

    #[test]
    fn people_see_a_key_as_it_was_given() {
        let payload = Payload::trusted("[1]".into());
        let shown = |unique: Unique, tenant| {
            let key = unique.resolve("k", tenant, &payload).unwrap().key;
            let shown = UniqueKey::shown(&key, "k", tenant);
            assert!(!shown.contains(char::is_control), "{shown:?}");
            shown
        };
        for tenant in [None, Some("acme")] {
            assert_eq!(shown(Unique::by_key("order:42"), tenant), "order:42");
            assert_eq!(shown(Unique::by_key("acme"), tenant), "acme");
            assert_eq!(shown(Unique::by_parts(["a", "", "b c"]), tenant), "a b c");
            let print = shown(Unique::by_payload(), tenant);
            assert!(print.starts_with('#') && is_print(&print[1..]), "{print}");
        }
        assert_eq!(UniqueKey::shown("order:42", "k", Some("acme")), "order:42", "shown already");
    }

    #[test]
    fn the_same_work_has_the_same_key() {
        let all = Unique::by_payload();
        let same = key(&all, "k", r#"{"a":1,"b":{"x":2,"y":3}}"#);
        assert_eq!(key(&all, "k", r#"{ "b": {"y":3, "x":2}, "a":1 }"#), same);
        assert_ne!(key(&all, "k", r#"{"a":2,"b":{"x":2,"y":3}}"#), same);
        assert_ne!(key(&all, "other", r#"{"a":1,"b":{"x":2,"y":3}}"#), same);

        let user = Unique::by_fields(["user"]);
        let one = key(&user, "k", r#"{"user":1,"at":"noon"}"#);
        assert_eq!(key(&user, "k", r#"{"user":1,"at":"night"}"#), one);
        assert_ne!(key(&user, "k", r#"{"user":2,"at":"noon"}"#), one);
    }

    #[test]
    fn large_integers_make_different_keys() {
        let all = Unique::by_payload();
        assert_ne!(
            key(&all, "k", r#"{"n":9007199254740992}"#),
            key(&all, "k", r#"{"n":9007199254740993}"#)
        );
    }

    #[test]
    fn a_key_tells_what_it_was_made_of() {
        let tenants = [None, Some("t")];
        let both = tenants
            .map(|tenant| [(Unique::by_key("a=b#c"), tenant), (Unique::by_payload(), tenant)]);
        for (unique, tenant) in both.into_iter().flatten() {
            let made = unique.resolve("k", tenant, &Payload::null()).unwrap();
            let again = match made.made("k") {
                Made::Given(key) => Unique::by_key(key),
                Made::Print(print) => Unique::by_print(print),
            };
            assert_eq!(again.resolve("k", tenant, &Payload::null()).unwrap(), made);
        }
        let error = Unique::by_print("abc").resolve("k", None, &Payload::null()).unwrap_err();
        assert_eq!(error.code(), "wish_contradiction");
    }

    #[test]
    fn no_key_is_the_same_as_that_of_another_tenant_or_one_of_parts() {
        let made = |unique: Unique, tenant| {
            unique.resolve("k", tenant, &Payload::null()).map(|unique| unique.key)
        };
        let keys = [
            made(Unique::by_key("a"), None),
            made(Unique::by_key("a"), Some("t")),
            made(Unique::by_key("at"), None),
            made(Unique::by_key("a"), Some("u")),
            made(Unique::by_payload(), None),
            made(Unique::by_payload(), Some("t")),
            made(Unique::by_parts(["a", "", "b"]), None),
            made(Unique::by_parts(["a", "b", ""]), None),
            made(Unique::by_parts(["a", "b"]), None),
            made(Unique::by_parts(["a", "b"]), Some("t")),
        ];
        let keys: Vec<_> = keys.into_iter().map(Result::unwrap).collect();
        assert_eq!(keys[0], "k=a", "one without a tenant is as it was");
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len(), "{keys:?}");
        let posing = made(Unique::by_key("\u{1f}a\u{1f}b"), None).unwrap_err();
        assert_eq!(posing.code(), "name_invalid");
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = Unique::by_fields(["user"]).resolve("k", None, &Payload::null()).unwrap_err();
        assert_eq!(error, Error::UniqueFieldMissing { field: "user".into() });
    }

    #[test]
    fn an_empty_key_is_refused() {
        let error = Unique::by_key("").resolve("k", None, &Payload::null()).unwrap_err();
        assert_eq!(error.code(), "name_empty");
    }
}
