-- Encrypts values of flow_step anew, unless they have changed since they were read.
update tidemill.flow_step
set undo = $3::text::json
where flow = $1::text::uuid and number = $2::int8
    and undo::text is not distinct from $5::text and $4::text is null and $6::text is null
returning 1
