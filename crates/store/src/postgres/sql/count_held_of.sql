-- How many jobs of one queue are held at each of these gates, counted up to 100,000. A name that ends in chr(31) means
-- all gates of a limit by tenant or key.
select (
    select least(coalesce(sum(h.number), 0), 100000)::int8 from (
        select cardinality(r.ids) - r.taken as number from tidemill.ready r
        where r.line = 2 and r.queue = $2::text and r.gate >= t.name and r.gate < case right(t.name, 1)
            when chr(31) then left(t.name, -1) || chr(32) else t.name || chr(1) end
        limit 100000
    ) h)
from unnest($1::text[]) with ordinality t(name, place)
order by t.place;
