-- How many jobs wait and how many run. Exact. What flows have not let go is what is left of them without what is open.
select (select coalesce(sum(cardinality(ids) - taken), 0)::int8 from tidemill.ready)
    + (select count(*) from tidemill.unique_key where next_id is not null)
    + (select count(*) from tidemill.line_waiting)
    + (select coalesce(sum(s."left"), 0)::int8 from tidemill.flow_step s where s.state < 3)
    - (select coalesce(sum(f.jobs_open), 0)::int8 from tidemill.flow f where f.finished_at is null),
    (select count(*) from tidemill.lease l, unnest(l.ids) i
     where i <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i));
