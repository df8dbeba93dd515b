//! The handlers of the demo: they take as long as such work takes, and fail as such work fails.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidemill::{Context, Fail, Job, Timestamp, Worker};

use super::kinds::{
    AccountReady, CreateKeys, Export, FollowUpMail, Person, ProvisionTenant, SampleData, SignUp,
    SyncLegacyCrm, WelcomeMail,
};
use super::signup::IN_LEGACY_CRM_EVERY;

/// Exports that somebody asks for at once.
pub const EXPORTS: u64 = 3;

/// What this run of the demo is going to do.
#[derive(Debug)]
pub struct Plan {
    /// Its name, a tag on every job of it.
    pub run: String,
    /// When it began, by the store's clock.
    pub began_at: Timestamp,
    /// How many people sign up.
    pub sign_ups: u64,
    /// In which time.
    pub arrivals: Duration,
    /// How long after the sign-up the follow-up mail is due.
    pub follow_up_delay: Duration,
}

impl Plan {
    /// How many jobs of a kind there will be.
    pub fn jobs_of(&self, kind: &str) -> u64 {
        match kind {
            SyncLegacyCrm::KIND => self.sign_ups.div_ceil(IN_LEGACY_CRM_EVERY),
            Export::KIND => EXPORTS,
            _ => self.sign_ups,
        }
    }

    /// How many jobs there will be in all.
    pub fn jobs(&self) -> u64 {
        super::kinds::KINDS.iter().map(|(kind, _)| self.jobs_of(kind)).sum()
    }

    /// How many people have arrived after so long: two tides come in.
    pub fn arrived_after(&self, since: Duration) -> u64 {
        let part = (since.as_secs_f64() / self.arrivals.as_secs_f64()).min(1.0);
        let turns = 2.0 * std::f64::consts::TAU;
        let tide = part - (turns * part).sin() / turns * 0.8;
        (tide * self.sign_ups as f64).round() as u64
    }
}

/// A service that allows so many calls in each half second.
#[derive(Debug)]
pub struct KeyService(Mutex<(Instant, u32)>);

impl Default for KeyService {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }
}

impl KeyService {
    const WINDOW: Duration = Duration::from_millis(500);
    const CALLS_MAX: u32 = 30;

    fn call(&self) -> Result<(), Fail> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.0.elapsed() >= Self::WINDOW {
            *window = (Instant::now(), 0);
        }
        window.1 += 1;
        if window.1 <= Self::CALLS_MAX {
            return Ok(());
        }
        let rest = Self::WINDOW.saturating_sub(window.0.elapsed());
        Err(Fail::rate_limited(rest.mul_f64(1.0 + fastrand::f64())))
    }
}

/// Gives a worker all handlers.
pub fn all(worker: Worker) -> Worker {
    worker
        .handle(|SignUp(person), _| sign_up(person))
        .handle(|WelcomeMail(person), _| welcome_mail(person))
        .handle(|ProvisionTenant(person), _| provision_tenant(person))
        .handle(|CreateKeys(person), cx: Context| create_keys(person, cx))
        .handle(|SampleData(_), cx: Context| sample_data(cx))
        .handle(|FollowUpMail(person), _| follow_up_mail(person))
        .handle(|SyncLegacyCrm(person), _| sync_legacy_crm(person))
        .handle(|AccountReady(person), cx: Context| account_ready(person, cx))
        .handle(|Export(person), _| export(person))
}

async fn sign_up(person: Person) -> Result<Value, Fail> {
    work(3..12).await;
    fails_at_times(0.02, "the session store did not answer")?;
    Ok(json!({ "user": person.user }))
}

async fn welcome_mail(person: Person) -> Result<Value, Fail> {
    work(10..40).await;
    fails_at_times(0.08, "451 4.3.2 the mail server is busy, try again later")?;
    Ok(json!({ "sent_to": person.email }))
}

async fn provision_tenant(person: Person) -> Result<Value, Fail> {
    work(30..120).await;
    fails_at_times(0.10, "connection reset by peer while creating the schema")?;
    Ok(json!({ "schema": format!("{}_{}", person.tenant, person.user) }))
}

async fn create_keys(person: Person, cx: Context) -> Result<Value, Fail> {
    cx.state::<KeyService>()?.call()?;
    work(2..8).await;
    Ok(json!({ "key_id": format!("k{}", person.user) }))
}

/// Fills what the step before has made.
async fn sample_data(cx: Context) -> Result<Value, Fail> {
    let tenant: Value = cx.output_of("tenant").await?;
    work(15..70).await;
    fails_at_times(0.04, "deadlock detected, the transaction was rolled back")?;
    Ok(json!({ "schema": tenant["schema"], "rows": fastrand::u32(50..500) }))
}

async fn account_ready(person: Person, cx: Context) -> Result<Value, Fail> {
    let (keys, samples): (Value, Value) =
        (cx.output_of("keys").await?, cx.output_of("samples").await?);
    Ok(json!({ "user": person.user, "key_id": keys["key_id"], "rows": samples["rows"] }))
}

async fn follow_up_mail(person: Person) -> Result<Value, Fail> {
    work(5..20).await;
    if person.user.is_multiple_of(25) {
        return Err(Fail::cancel("unsubscribed meanwhile"));
    }
    fails_at_times(0.05, "451 4.3.2 the mail server is busy, try again later")?;
    Ok(json!({ "sent_to": person.email }))
}

async fn export(person: Person) -> Result<Value, Fail> {
    work(400..600).await;
    Ok(json!({ "file": format!("{}.zip", person.tenant) }))
}

async fn sync_legacy_crm(person: Person) -> Result<Value, Fail> {
    work(5..15).await;
    Err(if (person.user / IN_LEGACY_CRM_EVERY).is_multiple_of(3) {
        Fail::transient(format!(
            "crm-legacy:8443 refused the account {}: no such table",
            person.user
        ))
    } else {
        Fail::transient("crm-legacy:8443 did not answer within 30 s")
    })
}

async fn work(ms: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(ms))).await;
}

fn fails_at_times(chance: f64, message: &str) -> Result<(), Fail> {
    if fastrand::f64() < chance { Err(Fail::transient(message)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_arrives_and_nobody_leaves() {
        let plan = Plan {
            run: "r".to_owned(),
            began_at: Timestamp::UNIX_EPOCH,
            sign_ups: 360,
            arrivals: Duration::from_secs(8),
            follow_up_delay: Duration::ZERO,
        };
        let here: Vec<_> =
            (0..=90).map(|tenth| plan.arrived_after(Duration::from_millis(tenth * 100))).collect();
        assert!(here.is_sorted());
        assert_eq!((here[0], here[90]), (0, 360));
    }
}
