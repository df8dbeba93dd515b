-- Writes a batch of jobs, some with unique keys, all or none; a duplicate is an answer. In the order given.
select ord, id, answer from tidemill.enqueue_json($1::text, $2::timestamptz) order by ord;
