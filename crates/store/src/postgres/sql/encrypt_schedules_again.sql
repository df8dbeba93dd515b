-- Encrypts values of schedule anew, unless they have changed since they were read.
update tidemill.schedule
set definition = $3::text::json
where name = $1::text
    and definition::text is not distinct from $5::text and $2::int8 is not null and $4::text is null and $6::text is null
returning 1
