-- Locks the lines of what these workers hold, in order: behind unique keys, before leases.
select tidemill.lock_lines_of(array(select unnest(l.ids) from tidemill.lease l where l.worker = any ($1::uuid[])));
