-- Puts something large beside an entry.
update tidemill.journal set value = $3::text where job = $1::uuid and number = $2::int4;
