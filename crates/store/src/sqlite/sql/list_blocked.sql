-- All jobs that wait for another one: kept for after the holder of their unique key, or behind the
-- first of their line. Newest first.
select next_id from tidemill_unique_key where next_id is not null
union all
select id from tidemill_line_waiting
order by 1 desc
