//! Ids and unique keys that another job has already.
//!
//! Who sends a job may choose its id and its unique key, and so may hit those of another job. It refuses to say
//! anything of a job that the caller does not reach, whatever stands for what they sent.

use http::StatusCode;
use tidemill::{Receipt, Tidemill};
use tidemill_core::job::DEFAULT_QUEUE;
use tidemill_core::{Job, JobId, Wish};

use crate::access::Caller;
use crate::api::App;
use crate::problem::{Answer, Refusal};

/// What of a job must be the same when its id or its key comes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Print {
    /// The id that it was given, if it was.
    id: Option<JobId>,
    kind: String,
    queue: String,
    tenant: Option<String>,
    payload: String,
}

impl Print {
    pub(crate) fn of(wish: &Wish) -> Self {
        Self {
            id: wish.id,
            kind: wish.kind.clone(),
            queue: wish.queue.clone().unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
            tenant: wish.tenant.clone(),
            payload: wish.payload.as_ref().map_or("null", |raw| raw.get()).trim().to_owned(),
        }
    }

    /// Whether this job is to the letter what was sent. It may be where a full queue has sent it.
    pub(crate) async fn is(&self, mill: &Tidemill, job: &Job) -> bool {
        job.payload.is_same(&self.payload) && self.is_but_for_payload(mill, job).await
    }

    /// The same without its payload.
    pub(crate) async fn is_but_for_payload(&self, mill: &Tidemill, job: &Job) -> bool {
        self.is_akin(job)
            && (self.queue == job.queue
                || mill.diverts_to(&self.queue).await.as_ref() == Some(&job.queue))
    }

    fn is_akin(&self, job: &Job) -> bool {
        job.kind == self.kind && job.tenant == self.tenant
    }
}

/// Refuses to tell a caller of a job that stands for what they sent and is not theirs.
pub(crate) async fn check_answer(
    app: &App,
    caller: &Caller,
    print: &Print,
    receipt: &Receipt,
) -> Answer<()> {
    if (receipt.is_new() && print.id.is_none())
        || may_tell(app, caller, print, receipt.id()).await?
    {
        return Ok(());
    }
    Err(if receipt.is_new() { id_taken(receipt.id()) } else { key_taken() })
}

/// The same of a batch, with the id that was sent: it is written, so that what is not the caller's to know is answered
/// by a receipt that tells of nothing but what was sent.
pub(crate) async fn told(
    app: &App,
    caller: &Caller,
    (print, sent): (&Print, JobId),
    receipt: Receipt,
) -> Answer<Receipt> {
    // One that is new has the id that its sender gave it, and says nothing else.
    if receipt.is_new() || may_tell(app, caller, print, receipt.id()).await? {
        return Ok(receipt);
    }
    Ok(Receipt::Rejected { id: sent })
}

/// Whether a caller may know of a job that stands for what they sent.
async fn may_tell(app: &App, caller: &Caller, print: &Print, id: JobId) -> Answer<bool> {
    if !caller.is_limited() {
        return Ok(true);
    }
    let view = app.mill.job(id).await.map_err(|error| Refusal::from(error).after_write())?;
    let Some(view) = view else { return Ok(true) };
    Ok(caller.sees(&view) || print.is(&app.mill, &view.job).await)
}

/// What the store refused; of a batch, with the index of the job that holds the others up.
pub(crate) fn refused(error: tidemill::Error, batch: &[JobId]) -> Refusal {
    let (refusal, job) = match error {
        tidemill::Error::Store(tidemill::store::Error::DuplicateUnreached { job }) => {
            (key_taken(), job)
        }
        tidemill::Error::IdTaken { id } => (id_taken(id), id),
        error => return error.into(),
    };
    // Of two that have one id it is the second that is refused.
    let index = batch.iter().rposition(|id| *id == job);
    index.into_iter().fold(refusal, Refusal::at)
}

/// The id is the caller's own word, and all that is said.
fn id_taken(id: JobId) -> Refusal {
    let detail = format!(
        "another job has the id {id}, and nothing was enqueued; give this one an id of its own, or none"
    );
    Refusal::new(StatusCode::CONFLICT, "id_taken", detail)
}

fn key_taken() -> Refusal {
    let detail = "the job is a duplicate of one that this credential does not reach; give it another unique key";
    Refusal::new(StatusCode::CONFLICT, "duplicate_rejected", detail)
}
