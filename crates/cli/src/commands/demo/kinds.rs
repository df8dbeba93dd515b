//! The kinds of the demo: what a sign-up is, and what it causes.

use serde::{Deserialize, Serialize};
use tidemill::{Backoff, Jitter, Job, Priority, Retry, Settings};

/// Who signed up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Person {
    /// Their number.
    pub user: u64,
    /// Their address.
    pub email: String,
    /// Their company.
    pub tenant: String,
}

const NAMES: [&str; 10] =
    ["ada", "grace", "alan", "edsger", "barbara", "donald", "radia", "ken", "frances", "leslie"];
const TENANTS: [&str; 5] = ["acme", "globex", "initech", "hooli", "umbrella"];

impl Person {
    /// The person with this number in this run.
    pub fn of_number(run: &str, n: u64) -> Self {
        let name = NAMES[n as usize % NAMES.len()];
        // A few companies are large and most are small, as in life.
        let tenant = TENANTS[n as usize / 2 % (1 + n as usize % TENANTS.len())];
        Self {
            user: 1000 + n,
            email: format!("{name}.{n}@{run}.example"),
            tenant: tenant.to_owned(),
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $kind:literal, $queue:literal, $priority:ident, $attempts:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Serialize, Deserialize)]
            pub struct $name(pub Person);

            impl Job for $name {
                const KIND: &'static str = $kind;
                type Output = serde_json::Value;
                fn settings() -> Settings {
                    settings($queue, Priority::$priority, $attempts)
                }
            }
        )*

        /// All kinds, each with how many attempts it gets.
        pub const KINDS: &[(&str, u16)] = &[$(($kind, $attempts)),*];
    };
}

kinds! {
    /// The first job of all.
    SignUp: "sign_up", "default", Urgent, 5;
    /// Says hello.
    WelcomeMail: "welcome_mail", "mail", High, 8;
    /// Makes room for a company.
    ProvisionTenant: "provision_tenant", "provisioning", High, 8;
    /// Asks a service that allows only so many a second.
    CreateKeys: "create_keys", "provisioning", Normal, 5;
    /// Something to look at.
    SampleData: "sample_data", "default", Low, 6;
    /// Some time later: how is it going?
    FollowUpMail: "follow_up_mail", "mail", Low, 6;
    /// All of it is there: the end of a sign-up.
    AccountReady: "account_ready", "default", Normal, 5;
    /// Everything a company has: slow, and only one at a time for each.
    Export: "export", "exports", Low, 3;
    /// A system that nobody maintains: it always fails.
    SyncLegacyCrm: "sync_legacy_crm", "default", Low, 3;
}

fn settings(queue: &str, priority: Priority, attempts: u16) -> Settings {
    let backoff = Backoff::Exponential { base_ms: 150, cap_ms: 1000, jitter: Jitter::Equal };
    Settings {
        queue: queue.to_owned(),
        priority,
        retry: Retry::attempts(attempts).backoff(backoff),
        ..Settings::default()
    }
}
