-- When a job that waits in a line, or for the holder of its key, is due by itself.
select w.due from tidemill.line_waiting w where w.id = $1::uuid
union all
select u.next_due from tidemill.unique_key u where u.next_id = $1 and u.next_due is not null
limit 1;
