-- What is known of these gates: what they remember, who is inside, by worker, with a permit or without, and how many are held there. A name that
-- ends in chr(31) means all gates of a limit by tenant or key, as to who is held and how many are broken. Those are counted up to 100,000. Limits that are out of
-- reach ($2) do not write down who has no permit: those who run inside of their gates ($3, by the lease $4) are known to the caller.
select t.name, g.tat, greatest(g.shut_until, g.pause_until), coalesce(g.probing, 0) > 0, g.credit, i.workers, i.numbers,
    (select least(coalesce(sum(h.number), 0), 100000)::int8 from (
        select cardinality(r.ids) - r.taken as number from tidemill.ready r
        where r.line = 2 and r.gate >= t.name and r.gate < case right(t.name, 1)
            when chr(31) then left(t.name, -1) || chr(32) else t.name || chr(1) end
        limit 100000
    ) h),
    coalesce(g.probing, 0) = 2 and exists (select from tidemill.lease l where l.token = g.probe),
    (select count(*) from tidemill.gate b
        where b.probing > 0 and b.name >= t.name and b.name < case right(t.name, 1)
            when chr(31) then left(t.name, -1) || chr(32) else t.name || chr(1) end)
from unnest($1::text[]) with ordinality t(name, place)
left join tidemill.gate g on g.name = t.name, lateral (
    select coalesce(array_agg(p.worker), '{}') as workers, coalesce(array_agg(p.number), '{}') as numbers from (
        select l.worker, sum(p.held)::int8 as number
        from (
            select p.token, p.held from tidemill.permit p where p.gate = t.name and p.held > 0
            union all
            select s.token, 1 from tidemill.stowaway s
            where s.base = split_part(t.name, chr(31), 1) and s.gate = t.name and tidemill.is_aboard(s.token, s.id)
                and s.base <> all ($2::text[])
            union all
            select u.token, 1 from unnest($3::text[], $4::int8[]) u(gate, token)
            where u.gate = t.name
                and not exists (select from tidemill.permit p where p.gate = u.gate and p.token = u.token)
        ) p join tidemill.lease l on l.token = p.token
        group by l.worker order by l.worker
    ) p
) i
order by t.place;
