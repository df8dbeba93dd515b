-- Encrypts values of journal anew, unless they have changed since they were read.
update tidemill.journal
set entry = $3::text::json, value = $4::text
where job = $1::text::uuid and number = $2::int8
    and entry::text is not distinct from $5::text and value::text is not distinct from $6::text
returning 1
