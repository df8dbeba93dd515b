-- Gives permits back, one for each job and gate; the jobs were settled in this transaction. By arrays: a join that was
-- planned while the table was empty would walk all of it.
with leaving as materialized (
    select array_agg(f.gate) as gates, array_agg(f.gate || chr(30) || f.token) as permits, array_agg(f.number) as numbers
    from (
        select g.gate, g.token, count(*)::int4 as number from unnest($1::int8[], $2::text[]) g(token, gate)
        group by g.gate, g.token
    ) f
)
update tidemill.permit p set held = p.held - (
    select f.numbers[array_position(f.permits, p.gate || chr(30) || p.token)] from leaving f)
where p.gate = any ((select f.gates from leaving f)::text[])
    and p.gate || chr(30) || p.token = any ((select f.permits from leaving f)::text[]);
