-- Folds what was counted, and answers the queues that crossed a watermark, each once; waits for another who does it,
-- or leaves it to that one.
select queue, is_above, depth from tidemill.tend_depth($1::timestamptz, $2::boolean);
