-- How many jobs wait, kept ones included, and how many run. Exact at one moment.
select
    (select count(*) from tidemill_ready)
    + (select count(*) from tidemill_unique_key where next_id is not null),
    (select coalesce(sum(length(jobs) / 20), 0) from tidemill_lease)
