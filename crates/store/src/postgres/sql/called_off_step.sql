-- All jobs of a step have been called off. Under the flow's lock, as all changes of its steps: whoever has it knows where
-- their rows are.
with held as materialized (
    select f.id from tidemill.flow f where f.id = $1::uuid for update
)
update tidemill.flow_step s set call_off = false from held h where s.flow = h.id and s.number = $2::int4;
