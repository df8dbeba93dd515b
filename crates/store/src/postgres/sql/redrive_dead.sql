-- Sends dead letters on their way again, all attempts unspent. Answers those that were dead and now are ready, and
-- whether each is of a flow. Of runs the last failure is forgotten, so that they are tried again from there.
with replayed as materialized (
    select r.id, r.queue
    from tidemill.replay($2::uuid[], $3::text, $4::text::json, coalesce($1::timestamptz, now())) r
), forgotten as (
    delete from tidemill.journal j using replayed r
    where j.job = r.id and j.number = (
        select max(n.number) from tidemill.journal n
        where n.job = r.id and n.entry -> 'ended' -> 'ending' -> 'err' is not null)
)
select r.id, r.queue, j.flow is not null
from replayed r, lateral (select j.flow from tidemill.job j where j.id = r.id limit 1) j;
