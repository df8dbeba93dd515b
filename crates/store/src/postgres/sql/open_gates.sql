-- The gates that jobs of these workers were inside of: their places are free, once the leases are gone.
insert into tidemill.gate as x (name, base, opens_at)
select d.gate, split_part(d.gate, chr(31), 1), coalesce($2::timestamptz, now())
from (select distinct g from tidemill.lease l, unnest(l.gates) g where l.worker = any ($1::uuid[])) d(gate)
order by d.gate collate "C"
on conflict (name) do update set opens_at = least(coalesce(x.opens_at, excluded.opens_at), excluded.opens_at)
returning name;
