-- Dead letters that a rule may send on now, longest dead first: new, their delay over, below its bound, and still dead.
-- Those of a schedule wait until no other of it runs. What a replay refuses is left out: it would stand before the
-- others for ever. They are locked, flow, outcome and letter, and looked at as they are then; those that somebody has in
-- hand are left to him.
with chosen as materialized (
    select d.id from tidemill.dead d
    where d.triage = 0 and not d.archived
        and d.died_at <= coalesce($1::timestamptz, now()) - $2::int8 * interval '1 ms' and d.redrives < $3::int2
        and ($4::text is null or d.kind = $4) and ($5::text is null or d.queue = $5)
        and ($6::text is null or d.class = $6) and ($7::text is null or position($7 in d.error) > 0)
        and exists (select from tidemill.outcome o where o.id = d.id and o.state = 6 and not o.bare offset 0)
        and not exists (select from tidemill.run r where r.job = d.id and r.undone offset 0)
        and not exists (select from tidemill.debt b where b.job = d.id offset 0)
        and not exists (
            -- By its id first: an index of flows holds ids, too, and is small while there are few of them.
            select from (select j.flow, j.step from tidemill.job j where j.id = d.id offset 0) j
            join tidemill.flow f on f.id = j.flow and f.saga
            join tidemill.flow_step s on s.flow = j.flow and s.number = j.step and s.undoes is null
            where (f.state in (6, 7) or f.state = 8 and exists (
                select from tidemill.flow_step u where u.flow = f.id and u.undoes is not null))
            offset 0)
        and not exists (
            select from (select j.flow from tidemill.job j where j.id = d.id offset 0) j
            join tidemill.flow f on f.id = j.flow and f.forget_at <= coalesce($1::timestamptz, now())
            offset 0)
        and not exists (
            select from tidemill.job j join tidemill.unique_key u on u.key = j.unique_key and u.id <> j.id
            where j.id = d.id and starts_with(j.unique_key, 'tidemill:schedule=')
            offset 0)
    order by d.died_at, d.id limit $8::int8
), flows as materialized (
    select f.id from tidemill.flow f
    where f.id = any (array(
        select o.flow from tidemill.outcome o where o.id = any (array(select c.id from chosen c)) and o.flow is not null))
    order by f.id for share skip locked
), held as materialized (
    select o.id from tidemill.outcome o
    where o.id = any (array(select c.id from chosen c)) and o.state = 6 and not o.bare
        and (o.flow is null or o.flow in (select f.id from flows f))
    order by o.id for update skip locked
)
select d.id from tidemill.dead d
where d.id = any (array(select h.id from held h)) and d.triage = 0 and not d.archived
order by d.died_at, d.id for update skip locked;
