-- The queues in which jobs are.
select id, queue from tidemill.job where id = any ($1::uuid[]);
