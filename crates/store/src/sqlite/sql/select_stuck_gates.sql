-- Gates that hold somebody although there is room by the limits with a name (?2), or although there is no such limit, and
-- no clock opens them: whoever should have is gone. With how many may try.
with recursive held (gate) as (
    select min(gate) from tidemill_ready where line = 2
    union all
    select (select min(gate) from tidemill_ready where line = 2 and gate > held.gate)
    from held where held.gate is not null
), named (base, most) as materialized (
    select value ->> 'base', value ->> 'most' from json_each(?2)
), looked_at (gate, room) as (
    select held.gate, case
        when most is null then 1000
        else min(1000, most - (select coalesce(sum(permit.held), 0) from tidemill_permit as permit
            where permit.gate = held.gate) - (
            select count(*) from tidemill_stowaway as one join tidemill_lease as lease on lease.token = one.token
            where one.base = named.base and one.gate = held.gate and instr(lease.jobs, one.id) > 0))
    end
    from held left join named on base = substr(held.gate, 1, instr(held.gate || char(31), char(31)) - 1)
    where held.gate is not null
        and not exists (
            select 1 from tidemill_gate as gate
            where gate.base = substr(held.gate, 1, instr(held.gate || char(31), char(31)) - 1)
                and gate.name = held.gate and gate.opens_at > ?1 - 5000000
        )
)
select gate, room from looked_at where room > 0 limit 10000
