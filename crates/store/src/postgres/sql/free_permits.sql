-- Gives permits back, one for each job and gate; the jobs were settled in this transaction.
update tidemill.permit p set held = p.held - f.number
from (
    select g.gate, g.token, count(*)::int4 as number from unnest($1::int8[], $2::text[]) g(token, gate)
    group by g.gate, g.token
) f
where p.gate = f.gate and p.token = f.token;
