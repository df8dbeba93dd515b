-- Where these jobs are, and whose.
select id, queue, tenant from tidemill.job where id = any ($1::uuid[]);
