-- Encrypts values of job anew, unless they have changed since they were read.
update tidemill.job
set payload = $3::text::json
where id = $1::text::uuid
    and payload::text is not distinct from $5::text and $2::int8 is not null and $4::text is null and $6::text is null
returning 1
