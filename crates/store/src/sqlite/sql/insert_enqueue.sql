-- Enqueues one job through the view that plain SQL uses, and leaves a receipt for it.
insert into tidemill_enqueue (
    id, kind, payload, queue, priority, run_at, delay_ms, tenant, key, options,
    whole_key, unique_scope, unique_period_ms, on_duplicate, force, now_us, receipt, bounded, within
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
