-- How many jobs wait, kept ones and those in lines included, and how many run. Exact at one moment. What flows have not
-- let go is what is left of them without what is open.
select
    (select count(*) from tidemill_ready)
    + (select count(*) from tidemill_unique_key where next_id is not null)
    + (select count(*) from tidemill_line_waiting)
    + (select coalesce(sum(left), 0) from tidemill_flow_step where state < 3)
    - (select coalesce(sum(jobs_open), 0) from tidemill_flow where finished_at is null),
    (select coalesce(sum(length(jobs) / 20), 0) from tidemill_lease)
