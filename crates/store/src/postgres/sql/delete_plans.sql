-- Forgets plans that are kept no longer and whose letters are forgotten.
delete from tidemill.plan p
where (p.kept_until <= coalesce($1::timestamptz, now())
        or p.id <= (select n.id from tidemill.plan n order by n.id desc limit 1 offset $2::int8))
    and not exists (select from tidemill.plan_letter l where l.plan = p.id);
