-- Begins a new run with the journal of another, up to before an entry, with what stands beside: some entries otherwise,
-- some not at all.
with begun as (
    insert into tidemill.run (job, began_at, version, journal_entries_max)
    select $3::uuid, coalesce($1::timestamptz, now()), r.version, r.journal_entries_max
    from tidemill.run r where r.job = $2::uuid
)
insert into tidemill.journal (job, number, at, entry, value)
select $3, j.number, j.at, coalesce(c.entry::json, j.entry), j.value
from tidemill.journal j
left join unnest($5::int4[], $6::text[]) c(number, entry) on c.number = j.number
where j.job = $2 and j.number < $4::int4 and j.number <> all ($7::int4[]);
