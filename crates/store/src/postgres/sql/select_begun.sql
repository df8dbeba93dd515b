-- Those of these jobs of which an attempt has begun.
select j.id from tidemill.job j where j.id = any ($1::uuid[]) and tidemill.has_begun(j.id, j.options);
