-- Encrypts values of decided anew, unless they have changed since they were read.
update tidemill.decided
set output = $3::text, follow_ups = $4::text
where id = $1::text::uuid
    and output::text is not distinct from $5::text and follow_ups::text is not distinct from $6::text and $2::int8 is not null
returning 1
