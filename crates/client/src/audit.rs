//! The record of who did what. Only with the credential of an admin.

use serde::{Deserialize, Serialize};
use tidemill::Timestamp;
use tidemill::audit::{AuditFilter, AuditView};
use tidemill_core::cursor;

use crate::error::Result;
use crate::http::{Client, PAGE_MAX, path};

/// The record of a server; see [`Client::audit`].
#[derive(Debug, Clone, Copy)]
pub struct Audit<'a>(&'a Client);

#[derive(Serialize)]
struct Asked<'a> {
    who: Option<&'a str>,
    act: Option<&'a str>,
    target: Option<&'a str>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    cursor: Option<String>,
    limit: usize,
}

#[derive(Deserialize)]
struct Page {
    acts: Vec<AuditView>,
}

impl Client {
    /// The record of who did what.
    pub fn audit(&self) -> Audit<'_> {
        Audit(self)
    }
}

impl Audit<'_> {
    /// Acts, newest first.
    pub async fn list(&self, filter: &AuditFilter) -> Result<Vec<AuditView>> {
        let (mut acts, mut before): (Vec<AuditView>, _) = (Vec::new(), filter.before);
        while acts.len() < filter.limit {
            let limit = (filter.limit - acts.len()).min(PAGE_MAX);
            let asked = Asked {
                who: filter.who.as_deref(),
                act: filter.act.as_deref(),
                target: filter.target.as_deref(),
                since: filter.since,
                until: filter.until,
                cursor: before.map(|id| cursor::write("audit", &id.to_string())),
                limit,
            };
            let page = self.0.get::<Page>(&path(["audit"]), &asked).await?.acts;
            let is_last = page.len() < limit;
            acts.extend(page);
            before = acts.last().map(|act| act.id);
            if is_last {
                break;
            }
        }
        Ok(acts)
    }
}
