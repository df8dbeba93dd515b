-- Encrypts values of object anew, unless they have changed since they were read.
update tidemill.object
set state = $3::text::json
where queue = split_part($1::text, chr(31), 1) and tenant = split_part($1::text, chr(31), 2)
    and key = split_part($1::text, chr(31), 3)
    and state::text is not distinct from $5::text and $2::int8 is not null and $4::text is null and $6::text is null
returning 1
