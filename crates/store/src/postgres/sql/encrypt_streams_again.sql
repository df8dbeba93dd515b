-- Encrypts values of stream anew, unless they have changed since they were read.
update tidemill.stream
set chunks = $3::text, progress = $4::text
where job = $1::text::uuid and first = $2::int8
    and chunks::text is not distinct from $5::text and progress::text is not distinct from $6::text
returning 1
