-- What a journal has under a number.
select entry::text from tidemill.journal where job = $1::uuid and number = $2::int4;
