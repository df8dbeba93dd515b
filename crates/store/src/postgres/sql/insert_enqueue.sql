-- Writes a batch of jobs, some with unique keys, all or none; a duplicate is an answer. In the order given.
-- $3: queues that are full overflow as their rules say, or refuse the batch; $4: they may divert it.
select ord, id, answer from tidemill.enqueue_json($1::text, $2::timestamptz, $3::boolean, $4::boolean) order by ord;
