-- Notes what runs, which are locked, wait for, and forgets what is kept of how they waited before.
with waiting as materialized (
    select * from unnest($1::uuid[], $2::int8[], $3::text[], $4::text[], $5::int8[]) w(job, wake_at, waits, parked, token)
), noted as (
    update tidemill.run r set wake_at = w.wake_at, wake_token = w.token, waits = w.waits::json, parked = w.parked::json
    from waiting w where r.job = w.job
)
delete from tidemill.attempt a using waiting w where a.id = w.job and a.token < w.token and a.class is null;
