-- Encrypts values of run_act anew, unless they have changed since they were read.
update tidemill.run_act
set was = $3::text::json, became = $4::text::json
where number = $2::int8
    and was::text is not distinct from $5::text and became::text is not distinct from $6::text and $1::text is not null
returning 1
