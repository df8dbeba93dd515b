-- Ends leases that have nothing left to settle, and that nobody ended: their settles went another way.
delete from tidemill.lease l
where l.claimed_at < coalesce($1::timestamptz, now()) - interval '1 minute' and not exists (
    select from unnest(l.ids) i
    where i <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i offset 0));
