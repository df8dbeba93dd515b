-- Notes why a flow is called off, and that its jobs are to be.
with told as (
    update tidemill.flow_step set call_off = true, call_offs = call_offs + 1
    where flow = $1::uuid and state in (1, 2) and undoes is null
)
update tidemill.flow set reason = $2::text, tend = true where id = $1;
