-- The store's present.
select coalesce($1::timestamptz, now());
