-- Notes when to look whether stowaways of these limits ($2) still run, and opens the gates ($4, of the limits $3) beside
-- which somebody was held: all in one order.
with noted as (
    select s.base as name, s.base, coalesce($1::timestamptz, now()) + interval '500 ms' as at
    from unnest($2::text[]) s(base)
    union all
    select g.gate, g.base, coalesce($1::timestamptz, now()) from unnest($3::text[], $4::text[]) g(base, gate)
)
insert into tidemill.gate as x (name, base, opens_at)
select n.name, n.base, min(n.at) from noted n group by n.name, n.base order by n.name collate "C"
on conflict (name) do update set opens_at = least(coalesce(x.opens_at, excluded.opens_at), excluded.opens_at);
