-- Takes jobs out of locked sheaves. It changes the rows, so a claim with an older snapshot looks again.
update tidemill.ready set taken = 0, ids = array(
    select i.id from unnest(ids[taken + 1:]) with ordinality i(id, at)
    where (i.id in (select unnest($2::uuid[]))) is not true order by i.at)
where seq = any ($1::int8[]);
