-- Dead letters that a rule may send on now: new, their delay over, below its bound, and still dead. Those of a schedule
-- wait until no other of it runs.
select d.id from tidemill.dead d
where d.triage = 0 and not d.archived
    and d.died_at <= coalesce($1::timestamptz, now()) - $2::int8 * interval '1 ms' and d.redrives < $3::int2
    and ($4::text is null or d.kind = $4) and ($5::text is null or d.queue = $5)
    and ($6::text is null or d.class = $6) and ($7::text is null or position($7 in d.error) > 0)
    and exists (select from tidemill.outcome o where o.id = d.id and o.state = 6 offset 0)
    and not exists (select from tidemill.run r where r.job = d.id and r.undone)
    and not exists (
        select from tidemill.job j join tidemill.unique_key u on u.key = j.unique_key and u.id <> j.id
        where j.id = d.id and starts_with(j.unique_key, 'tidemill:schedule='))
order by d.died_at, d.id limit $8::int8;
