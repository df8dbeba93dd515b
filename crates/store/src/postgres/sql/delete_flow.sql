-- Forgets a flow whose jobs are forgotten.
with steps as (
    delete from tidemill.flow_step where flow = $1::uuid
), edges as (
    delete from tidemill.flow_edge where flow = $1
), arrivals as (
    delete from tidemill.flow_arrival where flow = $1
), parts as (
    delete from tidemill.flow_part where flow = $1
)
delete from tidemill.flow where id = $1;
