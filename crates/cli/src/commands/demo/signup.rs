//! A sign-up is a flow: what it causes runs as soon as what it needs has, and a click on the button starts all
//! of it or nothing.

use tidemill::{Enqueue, Flow, FlowId, Job};

use super::handlers::Plan;
use super::kinds::{
    AccountReady, CreateKeys, FollowUpMail, Person, ProvisionTenant, SampleData, SignUp,
    SyncLegacyCrm, WelcomeMail,
};

/// What the flows are called.
pub const NAME: &str = "signup";

/// Every so many people come from a company that the old CRM knows.
pub const IN_LEGACY_CRM_EVERY: u64 = 12;

/// The flow of the person with this number. Its id is made of nothing but the click, so that the second click
/// of a double one starts nothing.
pub fn flow(plan: &Plan, n: u64, id: FlowId) -> Flow {
    let person = Person::of_number(&plan.run, n);
    let of_run = |job: Enqueue| job.tenant(person.tenant.clone()).tag(plan.run.clone());
    macro_rules! job {
        ($kind:ident) => {
            of_run(Enqueue::new(&$kind(person.clone())))
        };
    }
    let flow = Flow::new(NAME)
        .id(id)
        .step("account", job!(SignUp))
        .step("welcome", job!(WelcomeMail))
        .after("account")
        .step("tenant", job!(ProvisionTenant))
        .after("account")
        .step("keys", job!(CreateKeys))
        .after("account")
        .step("samples", job!(SampleData))
        .after("tenant")
        .step("follow_up", job!(FollowUpMail).delay(plan.follow_up_delay))
        .after("tenant")
        .step("ready", job!(AccountReady))
        .after_all(["welcome", "keys", "samples"])
        // Who has unsubscribed gets no mail, and an account all the same.
        .after_either("follow_up");
    if n.is_multiple_of(IN_LEGACY_CRM_EVERY) {
        flow.step("crm", job!(SyncLegacyCrm)).after("account")
    } else {
        flow
    }
}

/// The kinds whose end a kind waits for.
pub fn waits_for(kind: &str) -> &'static [&'static str] {
    match kind {
        WelcomeMail::KIND | ProvisionTenant::KIND | CreateKeys::KIND | SyncLegacyCrm::KIND => {
            &[SignUp::KIND]
        }
        SampleData::KIND | FollowUpMail::KIND => &[ProvisionTenant::KIND],
        AccountReady::KIND => {
            &[WelcomeMail::KIND, CreateKeys::KIND, SampleData::KIND, FollowUpMail::KIND]
        }
        _ => &[],
    }
}
