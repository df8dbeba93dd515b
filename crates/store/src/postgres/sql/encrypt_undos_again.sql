-- Encrypts values of flow_step anew, unless they have changed since they were read. Under the flow's lock, as all changes
-- of its steps: whoever has it knows where their rows are.
with held as materialized (
    select f.id from tidemill.flow f where f.id = $1::text::uuid for update
)
update tidemill.flow_step s
set undo = $3::text::json
from held h
where s.flow = h.id and s.number = $2::int8
    and s.undo::text is not distinct from $5::text and $4::text is null and $6::text is null
returning 1
