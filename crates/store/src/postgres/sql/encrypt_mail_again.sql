-- Encrypts values of mail anew, unless they have changed since they were read.
update tidemill.mail
set content = $3::text::json, answer = $4::text::json
where job = $1::text::uuid and number = $2::int8
    and content::text is not distinct from $5::text and answer::text is not distinct from $6::text
returning 1
