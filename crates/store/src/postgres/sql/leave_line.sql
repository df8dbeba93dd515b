-- Takes jobs out of their lines; behind one that was the first, the next gets its turn. Answers the queues of those.
select tidemill.leave_lines($1::uuid[], coalesce($2::timestamptz, now()));
