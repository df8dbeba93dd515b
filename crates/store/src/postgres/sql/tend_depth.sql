-- Folds what was counted, and answers the queues that crossed a watermark, each once; nothing while another does it.
select queue, is_above, depth from tidemill.tend_depth($1::timestamptz);
