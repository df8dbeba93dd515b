-- Deadlines that were looked at, and when each of these jobs is to be looked at again, if ever.
with seen as (
    delete from tidemill.deadline d
    using unnest($1::timestamptz[], $2::uuid[]) s(at, id)
    where d.at = s.at and d.id = s.id
)
insert into tidemill.deadline (at, id)
select n.at, n.id from unnest($2, $3::timestamptz[]) n(id, at) where n.at is not null
on conflict do nothing;
