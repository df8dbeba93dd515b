-- These jobs run inside of these gates. Who went in by one has a permit, and is no stowaway. Answers the limits that have any.
with written as (
    insert into tidemill.stowaway (base, gate, token, id)
    select s.base, s.gate, s.token, s.id
    from unnest($1::text[], $2::text[], $3::int8[], $4::uuid[]) s(base, gate, token, id)
    where not coalesce((
        select true from tidemill.permit p where p.gate = s.gate and p.token = s.token limit 1), false)
    returning base
)
select distinct w.base from written w;
