-- What decides whether these jobs are late: what they are, whether they have ended, and where they wait.
select j.id, j.kind, j.queue, j.options::text, j.created_at, o.id is not null, r.run_at, r.attempt,
    coalesce($1::timestamptz, now()), r.attempt > 0 or tidemill.has_begun(j.id, j.options)
from tidemill.job j
left join lateral (select o.id from tidemill.outcome o where o.id = j.id limit 1) o on true
left join lateral (
    select r.run_at, r.attempt from tidemill.ready r
    where r.seq = tidemill.sheaf_of(j.id) and j.id = any (r.ids[r.taken + 1:]) limit 1
) r on true
where j.id = any ($2::uuid[]);
