-- These jobs run inside of these gates. Who went in by one has a permit, and is no stowaway. Notes when to look whether
-- they still run, and opens the gates ($7, of the limits $6) beside which somebody was held: all in one order.
with written as (
    insert into tidemill.stowaway (base, gate, token, id)
    select s.base, s.gate, s.token, s.id
    from unnest($2::text[], $3::text[], $4::int8[], $5::uuid[]) s(base, gate, token, id)
    where not coalesce((
        select true from tidemill.permit p where p.gate = s.gate and p.token = s.token limit 1), false)
    returning base
), noted as (
    select w.base as name, w.base, coalesce($1::timestamptz, now()) + interval '500 ms' as at from written w
    union all
    select g.gate, g.base, coalesce($1::timestamptz, now()) from unnest($6::text[], $7::text[]) g(base, gate)
)
insert into tidemill.gate as x (name, base, opens_at)
select n.name, n.base, min(n.at) from noted n group by n.name, n.base order by 1
on conflict (name) do update set opens_at = least(coalesce(x.opens_at, excluded.opens_at), excluded.opens_at);
