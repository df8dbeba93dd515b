-- How many jobs wait and how many run. Exact.
select (select coalesce(sum(cardinality(ids) - taken), 0)::int8 from tidemill.ready)
    + (select count(*) from tidemill.unique_key where next_id is not null)
    + (select count(*) from tidemill.line_waiting),
    (select count(*) from tidemill.lease l, unnest(l.ids) i
     where i <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i));
