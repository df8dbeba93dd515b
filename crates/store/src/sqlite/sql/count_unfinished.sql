-- How many jobs wait, kept ones and those in lines included, and how many run. Exact at one moment.
select
    (select count(*) from tidemill_ready)
    + (select count(*) from tidemill_unique_key where next_id is not null)
    + (select count(*) from tidemill_line_waiting),
    (select coalesce(sum(length(jobs) / 20), 0) from tidemill_lease)
