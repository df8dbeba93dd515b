-- Gates that hold somebody while nobody is inside and no clock opens them: whoever should have is gone, or the limit is.
with recursive held (gate) as (
    select min(gate) from tidemill_ready where line = 2
    union all
    select (select min(gate) from tidemill_ready where line = 2 and gate > held.gate)
    from held where held.gate is not null
)
select gate from held
where gate is not null
    and not exists (select 1 from tidemill_permit where gate = held.gate and tidemill_permit.held > 0)
    and not exists (
        select 1 from tidemill_gate
        where base = substr(held.gate, 1, instr(held.gate || char(31), char(31)) - 1) and name = held.gate
            and opens_at > ?1 - 5000000
    )
limit 10000
