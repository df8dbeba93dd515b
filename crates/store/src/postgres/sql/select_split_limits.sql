-- The limits that have gates by tenant or key, found by a look or two each.
with recursive known as (
    (select g.base from tidemill.gate g order by g.base limit 1)
    union all
    (select n.base from known k, lateral (
        select g.base from tidemill.gate g where g.base > k.base order by g.base limit 1
    ) n)
)
select k.base from known k where exists (select from tidemill.gate g where g.base = k.base and g.name <> g.base);
