-- Those of these jobs that are children of this run: what they carry is not read.
select j.id from tidemill.job j where j.id = any ($2::uuid[]) and (j.options ->> 'parent')::uuid = $1::uuid;
