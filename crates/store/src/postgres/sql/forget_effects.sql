-- Forgets marks that are older than this, a page of them; answers a row for each.
delete from tidemill_effect where key = any (array(
    select key from tidemill_effect where recorded_at < now() - $1::text::int8 * interval '1 ms' limit $2::text::int8))
returning key
