-- These jobs run inside of these gates. Who went in by one has a permit, and is no stowaway. Notes when to look whether
-- they still run.
with written as (
    insert into tidemill.stowaway (base, gate, token, id)
    select s.base, s.gate, s.token, s.id
    from unnest($2::text[], $3::text[], $4::int8[], $5::uuid[]) s(base, gate, token, id)
    where not coalesce((
        select true from tidemill.permit p where p.gate = s.gate and p.token = s.token limit 1), false)
    returning base
)
insert into tidemill.gate as x (name, base, opens_at)
select distinct w.base, w.base, coalesce($1::timestamptz, now()) + interval '500 ms' from written w order by 1
on conflict (name) do update set opens_at = least(coalesce(x.opens_at, excluded.opens_at), excluded.opens_at);
