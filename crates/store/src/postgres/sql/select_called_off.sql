-- Those of these jobs that are children of these runs, were called off, and still run.
select j.id from unnest($1::uuid[], $2::uuid[]) h(id, parent)
join tidemill.job j on j.id = h.id and (j.options ->> 'parent')::uuid = h.parent
where exists (select from tidemill.lease l where h.id = any (l.cancelled) and h.id <> all (l.gone));
