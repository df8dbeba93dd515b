//! What is wrong with an input, in a sentence for people and a code for programs.
//!
//! A code never changes its meaning; each has a page in `docs/errors/`. Values that are part of
//! normal life (a duplicate, a lost lease) are not errors and do not appear here.

use jiff::Timestamp;
use thiserror::Error;

/// The result of checking an input.
pub type Result<T> = std::result::Result<T, Error>;

/// An input that was refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The payload is larger than the limit.
    #[error(
        "the payload has {bytes} bytes, the limit is {bytes_max}; store large data \
         elsewhere and enqueue a reference to it"
    )]
    PayloadTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit in force.
        bytes_max: usize,
    },
    /// The payload is not JSON.
    #[error("the payload is not JSON: {reason}")]
    PayloadNotJson {
        /// What the parser said.
        reason: String,
    },
    /// The payload nests deeper than the limit.
    #[error("the payload nests deeper than {depth_max} levels")]
    PayloadTooDeep {
        /// The limit in force.
        depth_max: usize,
    },
    /// The payload contains a NUL character, which Postgres cannot hold in text.
    #[error(
        "the payload contains the character U+0000 at byte {at}, which databases cannot \
         keep as text; remove it or encode the data as base64"
    )]
    PayloadNul {
        /// Where it stands.
        at: usize,
    },
    /// The payload contains half of a surrogate pair.
    #[error("the payload contains half of a surrogate pair at byte {at}: it is not Unicode text")]
    PayloadSurrogate {
        /// Where it stands.
        at: usize,
    },
    /// A chunk of a stream is larger than the limit.
    #[error(
        "the chunk has {bytes} bytes as it is written, the limit is {bytes_max}; say less at once, or keep large data \
         elsewhere and say where"
    )]
    ChunkTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit in force.
        bytes_max: usize,
    },
    /// The stream of a job has as many bytes as it may.
    #[error(
        "the stream of this job is full: it may have {bytes_max} bytes; say less, or say what need not be kept as \
         ephemeral"
    )]
    StreamFull {
        /// The limit in force.
        bytes_max: u64,
    },
    /// A name that must not be empty is empty.
    #[error("the {what} is empty")]
    NameEmpty {
        /// Which name.
        what: &'static str,
    },
    /// A name is too long.
    #[error("the {what} has {bytes} bytes, the limit is {bytes_max}")]
    NameTooLong {
        /// Which name.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A name contains a control character, or white space at an end.
    #[error("the {what} {name:?} {reason}")]
    NameInvalid {
        /// Which name.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A name is one of ours.
    #[error(
        "the {what} {name:?} is Tidemill's own: names that begin with `tidemill:` are; choose another"
    )]
    NameReserved {
        /// Which name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A due time is absurdly far in the future.
    #[error("the due time {due} is more than {years_max} years away")]
    DueTooFar {
        /// What was asked for.
        due: String,
        /// The limit.
        years_max: u32,
    },
    /// A moment of before 1970.
    #[error("the {what} {at} is not between 1970 and 9999")]
    TimeInvalid {
        /// Which moment.
        what: &'static str,
        /// What was given.
        at: Timestamp,
    },
    /// A text that is no time.
    #[error("{value:?} is not a time; write one like 2026-01-31T12:00:00Z, of a year before 9999")]
    TimeUnread {
        /// What was given.
        value: String,
    },
    /// A text that is no id.
    #[error("{value:?} is not an id; one is a UUID like 018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de")]
    IdInvalid {
        /// What was given.
        value: String,
    },
    /// A trace context that is none.
    #[error(
        "the trace context {value:?} is not a traceparent; one is like \
         00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    )]
    TraceInvalid {
        /// What was given.
        value: String,
    },
    /// A duration is negative or too long to mean anything.
    #[error("the {what} {value:?} is not a duration between 0 and {years_max} years")]
    DurationInvalid {
        /// Which duration.
        what: &'static str,
        /// What was given.
        value: String,
        /// The limit.
        years_max: u32,
    },
    /// More jobs than one call may carry.
    #[error("the batch has {jobs} jobs, the limit is {jobs_max}; split it")]
    BatchTooLarge {
        /// How many were given.
        jobs: usize,
        /// The limit.
        jobs_max: usize,
    },
    /// Too many tags.
    #[error("the job has {tags} tags, the limit is {tags_max}")]
    TagsTooMany {
        /// How many were given.
        tags: usize,
        /// The limit.
        tags_max: usize,
    },
    /// A word that is not one of those known here.
    #[error("{value:?} is not a {what}; one of {known}")]
    WordUnknown {
        /// Which kind of word.
        what: &'static str,
        /// What was given.
        value: String,
        /// The words known.
        known: &'static str,
    },
    /// A rule that cannot be followed.
    #[error("the rule of {rule} is refused: {reason}")]
    RuleInvalid {
        /// Which rule.
        rule: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Somebody else has set these rules since they were read.
    #[error("the rules of {queue:?} were changed by somebody else meanwhile; read them again")]
    RuleChanged {
        /// Whose rules.
        queue: String,
    },
    /// A credential that cannot be made as it is wished.
    #[error("the credential is refused: {reason}")]
    CredentialInvalid {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A webhook that cannot be as it is wished.
    #[error("the webhook is refused: {reason}")]
    WebhookInvalid {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A rule of what is hidden that names nothing.
    #[error("the rules of what is hidden are refused: {reason}")]
    RedactionInvalid {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Dead letters that were asked for by a field that is hidden.
    #[error(
        "{path} is hidden, or what was asked for may have hidden fields in it; it is not searched by"
    )]
    SearchHidden {
        /// The field.
        path: String,
    },
    /// A payload that was shown with hidden fields, and would be kept so.
    #[error("the payload has {hidden} in it, which stands for what was not shown")]
    PayloadHidden {
        /// What is shown instead.
        hidden: &'static str,
    },
    /// A webhook whose address may not be called.
    #[error("{host} is not called: {reason}")]
    WebhookRefused {
        /// The host of its URL.
        host: String,
        /// Why.
        reason: String,
    },
    /// A unique key was asked for over a field that the payload does not have.
    #[error("the unique key is made of the field {field:?}, which the payload does not have")]
    UniqueFieldMissing {
        /// The field.
        field: String,
    },
    /// A job asks for order and names no key to order it by.
    #[error(
        "the job asks for order but has no key; give the key whose jobs are to run one after the \
         other, such as order:42, or do not ask for order"
    )]
    KeyMissing,
    /// A job lacks what a limit counts by.
    #[error(
        "limit {limit} of {rule} counts {kind} by {by}, and the job has none; give it a {by}, or let those without \
         one pass the limit (`tidemill limits set {limit} … --lacking pass`)"
    )]
    CountedByMissing {
        /// A tenant or a key.
        by: &'static str,
        /// The job's kind.
        kind: String,
        /// The limit.
        limit: String,
        /// The queue or pattern it was set for.
        rule: String,
    },
    /// A job lacks what a limit counts by in the queue that a full one would divert it to.
    #[error("the queue {queue:?} is full and would divert it to {to:?}, where {why}")]
    DivertRefused {
        /// The queue that it was for.
        queue: String,
        /// The one that would get it.
        to: String,
        /// What it lacks there.
        why: Box<Error>,
    },
    /// A worker asked for work in a way that cannot be.
    #[error("{reason}")]
    WorkInvalid {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Wishes of a job that contradict each other.
    #[error("the wishes of the job contradict each other: {reason}")]
    WishContradiction {
        /// Which, and what would be right.
        reason: String,
    },
    /// A flow with a step that cannot be.
    #[error("the step {step:?} of the flow cannot be: {reason}")]
    FlowInvalid {
        /// Which step.
        step: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A flow that cannot be as a whole.
    #[error("the flow {flow:?} cannot be: {reason}")]
    FlowWholeInvalid {
        /// Its name.
        flow: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A flow that would never end.
    #[error("the flow would never end: its steps wait for each other, {cycle}")]
    FlowCycle {
        /// The steps, in order.
        cycle: String,
    },
    /// A flow of too much.
    #[error(
        "the flow has {number} {what}, {max} at most; let a step have many jobs, or start several flows"
    )]
    FlowTooLarge {
        /// Of what.
        what: &'static str,
        /// How many.
        number: usize,
        /// The limit.
        max: usize,
    },
    /// A cron expression that is none.
    #[error("the cron expression {cron:?} is not understood: {reason}")]
    ScheduleCronInvalid {
        /// What was given.
        cron: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A schedule without a single slot.
    #[error("the schedule {name:?} never fires: {}", never(*.excepted))]
    ScheduleNeverFires {
        /// Which schedule.
        name: String,
        /// Whether its rule has slots, and all of them are on dates that are excepted.
        excepted: bool,
    },
    /// A schedule whose time has passed already.
    #[error(
        "the schedule {name:?} is over: its last slot is not after {now}; give it a later time"
    )]
    ScheduleOver {
        /// Which schedule.
        name: String,
        /// The present.
        now: Timestamp,
    },
    /// A time zone that nobody knows.
    #[error(
        "the time zone {zone:?} is not known; give an IANA name like Europe/Berlin, \
         America/New_York or UTC"
    )]
    ScheduleZoneUnknown {
        /// What was given.
        zone: String,
    },
    /// A schedule that ends before it starts.
    #[error("the schedule ends at {end}, which is not after its start at {start}")]
    ScheduleEndBeforeStart {
        /// Its start.
        start: Timestamp,
        /// Its end.
        end: Timestamp,
    },
    /// An interval that is too short or too long.
    #[error(
        "every {every_ms} ms is not an interval; it is 1 second at least, {years_max} years at most"
    )]
    ScheduleEveryInvalid {
        /// What was given.
        every_ms: u64,
        /// The limit.
        years_max: u32,
    },
    /// Wishes of a schedule that contradict each other.
    #[error("the schedule contradicts itself: {what}; {instead}")]
    ScheduleContradiction {
        /// What is wrong.
        what: String,
        /// What would be right.
        instead: &'static str,
    },
    /// A limit that no journal can have.
    #[error(
        "a journal of {asked} entries cannot be allowed; {} to {} can",
        crate::workflow::JOURNAL_ENTRIES_MAX,
        crate::workflow::JOURNAL_ENTRIES_LAST
    )]
    JournalLimitInvalid {
        /// What was asked for.
        asked: u32,
    },
    /// A backfill of more slots than one call may fire.
    #[error("the backfill has more than {slots_max} slots; split it into shorter ranges")]
    BackfillTooLarge {
        /// The limit.
        slots_max: usize,
    },
    /// A backfill of slots that may have fired, and nobody knows.
    #[error(
        "the history of schedule {name} does not know any more which slots from {from} to {until} have fired; leave \
         them out, or fire the slots again whether they have fired or not"
    )]
    BackfillForgotten {
        /// Of which schedule.
        name: String,
        /// From this slot on it is forgotten.
        from: Timestamp,
        /// Up to this one.
        until: Timestamp,
    },
    /// A backfill whose range is none.
    #[error("the backfill from {from} to {to} is no range of the past; now is {now}")]
    BackfillRangeInvalid {
        /// Its start.
        from: Timestamp,
        /// Its end.
        to: Timestamp,
        /// The present.
        now: Timestamp,
    },
}

/// Why a schedule never fires, and what to look at.
fn never(excepted: bool) -> &'static str {
    if excepted {
        "every slot it could still have is on a date that is excepted; leave one of those dates out, or give it a \
         later end"
    } else {
        "no moment between its start and its end fits its rule; look at the day and month (`0 0 30 2 *` has no day), \
         the start and the end"
    }
}

impl Error {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::PayloadNotJson { .. } => "payload_not_json",
            Self::PayloadTooDeep { .. } => "payload_too_deep",
            Self::PayloadNul { .. } => "payload_nul",
            Self::PayloadSurrogate { .. } => "payload_surrogate",
            Self::ChunkTooLarge { .. } => "chunk_too_large",
            Self::StreamFull { .. } => "stream_full",
            Self::NameEmpty { .. } => "name_empty",
            Self::NameTooLong { .. } => "name_too_long",
            Self::NameInvalid { .. } => "name_invalid",
            Self::NameReserved { .. } => "name_reserved",
            Self::DueTooFar { .. } => "due_too_far",
            Self::TimeInvalid { .. } | Self::TimeUnread { .. } => "time_invalid",
            Self::IdInvalid { .. } => "id_invalid",
            Self::TraceInvalid { .. } => "trace_invalid",
            Self::DurationInvalid { .. } => "duration_invalid",
            Self::BatchTooLarge { .. } => "batch_too_large",
            Self::TagsTooMany { .. } => "tags_too_many",
            Self::WordUnknown { .. } => "word_unknown",
            Self::RuleInvalid { .. } => "rule_invalid",
            Self::RuleChanged { .. } => "rule_changed",
            Self::CredentialInvalid { .. } => "credential_invalid",
            Self::RedactionInvalid { .. } => "redaction_invalid",
            Self::PayloadHidden { .. } => "payload_hidden",
            Self::SearchHidden { .. } => "search_hidden",
            Self::WebhookInvalid { .. } => "webhook_invalid",
            Self::WebhookRefused { .. } => "webhook_refused",
            Self::UniqueFieldMissing { .. } => "unique_field_missing",
            Self::KeyMissing | Self::CountedByMissing { .. } | Self::DivertRefused { .. } => {
                "key_missing"
            }
            Self::WorkInvalid { .. } => "work_invalid",
            Self::WishContradiction { .. } => "wish_contradiction",
            Self::FlowInvalid { .. } | Self::FlowWholeInvalid { .. } => "flow_invalid",
            Self::FlowCycle { .. } => "flow_cycle",
            Self::FlowTooLarge { .. } => "flow_too_large",
            Self::ScheduleCronInvalid { .. } => "schedule_cron_invalid",
            Self::ScheduleNeverFires { .. } => "schedule_never_fires",
            Self::ScheduleOver { .. } => "schedule_over",
            Self::ScheduleZoneUnknown { .. } => "schedule_zone_unknown",
            Self::ScheduleEndBeforeStart { .. } => "schedule_end_before_start",
            Self::ScheduleEveryInvalid { .. } => "schedule_every_invalid",
            Self::ScheduleContradiction { .. } => "schedule_contradiction",
            Self::JournalLimitInvalid { .. } => "journal_limit_invalid",
            Self::BackfillTooLarge { .. } => "backfill_too_large",
            Self::BackfillForgotten { .. } => "backfill_forgotten",
            Self::BackfillRangeInvalid { .. } => "backfill_range_invalid",
        }
    }
}
