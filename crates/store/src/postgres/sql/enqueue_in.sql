-- Writes a batch of jobs in the caller's transaction, all or none; a duplicate, or a full queue, is an answer.
select ord, id, answer from tidemill.enqueue_in($1::text) order by ord;
