-- The limits whose gates have something to remember, found by one look each.
with recursive known as (
    (select g.base from tidemill.gate g order by g.base limit 1)
    union all
    (select n.base from known k, lateral (
        select g.base from tidemill.gate g where g.base > k.base order by g.base limit 1
    ) n)
)
select base from known;
