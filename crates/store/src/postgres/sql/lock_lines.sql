-- Locks lines, in order: behind unique keys, before sheaves and leases.
select tidemill.lock_lines($1::text[], $2::text[], $3::text[]);
