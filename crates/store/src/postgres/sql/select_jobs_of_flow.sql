-- A page of jobs of a flow.
select id from tidemill.job where flow = $1::uuid limit $2::int8;
