-- The jobs that callers decided under these leases and that have no outcome yet; what has one was carried out.
select d.id from tidemill.decided d
where d.token = any ($1::int8[]) and not exists (select from tidemill.outcome o where o.id = d.id offset 0);
