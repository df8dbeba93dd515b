//! Which object is meant: the same key of two tenants is two objects.
//!
//! It says nothing of what an object is: only its jobs know.

use crate::job::Job;

/// The key of an object, and the tenant whose it is.
///
/// ```
/// use tidemill_core::workflow::ObjectKey;
/// let key = ObjectKey::new("user-7").tenant("acme");
/// assert_ne!(key, ObjectKey::from("user-7"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectKey<'a> {
    /// The key.
    pub key: &'a str,
    /// The tenant. Defaults to none: objects of jobs without a tenant.
    pub tenant: Option<&'a str>,
}

impl<'a> ObjectKey<'a> {
    /// Of jobs without a tenant.
    pub fn new(key: &'a str) -> Self {
        Self { key, tenant: None }
    }

    /// Of jobs of this tenant, or without one.
    #[must_use]
    pub fn tenant(self, tenant: impl Into<Option<&'a str>>) -> Self {
        Self { tenant: tenant.into(), ..self }
    }

    /// Where a job keeps what it wants to be known, if it has a key.
    pub fn of(job: &'a Job) -> Option<Self> {
        Some(Self { key: job.key.as_deref()?, tenant: job.tenant.as_deref() })
    }
}

impl<'a> From<&'a str> for ObjectKey<'a> {
    fn from(key: &'a str) -> Self {
        Self::new(key)
    }
}

impl<'a> From<&'a String> for ObjectKey<'a> {
    fn from(key: &'a String) -> Self {
        Self::new(key)
    }
}
