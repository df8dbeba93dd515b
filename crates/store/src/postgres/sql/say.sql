-- Adds to the stream of a job what somebody has done with it; answers nothing if another writer of it was first.
insert into tidemill.stream (job, first, last, bytes, at, sent, chunks)
select $2::uuid, coalesce(e.last, 0) + 1, coalesce(e.last, 0) + 1, coalesce(e.bytes, 0) + octet_length($4::text),
    coalesce($1::timestamptz, now()), $3::uuid, $4
from (select 1) one
left join lateral (
    select s.last, s.bytes from tidemill.stream s where s.job = $2 order by s.first desc limit 1
) e on true
on conflict (job, first) do nothing
returning last;
