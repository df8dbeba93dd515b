-- How many jobs wait and how many run. Exact. What a flow has not let go is what is left of its steps that wait, and
-- what those that are being opened have still to let go; of a flow with a cap, what is left of it without what is under
-- way.
select (select coalesce(sum(cardinality(ids) - taken), 0)::int8 from tidemill.ready)
    + (select count(*) from tidemill.unique_key where next_id is not null)
    + (select count(*) from tidemill.line_waiting)
    + (select coalesce(sum(s."left"), 0)::int8 from tidemill.flow f
       join tidemill.flow_step s on s.flow = f.id and (s.state = 0 or s.state < 3 and f.at_once is not null)
       where f.finished_at is null)
    + (select count(*) from tidemill.flow f join tidemill.flow_step s on s.flow = f.id and s.state = 1
       join tidemill.job j on j.flow = s.flow and j.step = s.number
           and case when s.slow then j.sheaf = 0 else j.place > s.opened end
       where f.finished_at is null and f.at_once is null
           and not exists (select from tidemill.outcome o where o.id = j.id offset 0))
    - (select coalesce(sum(f.jobs_open), 0)::int8 from tidemill.flow f
       where f.finished_at is null and f.at_once is not null),
    (select count(*) from tidemill.lease l, unnest(l.ids) i
     where i <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i offset 0));
