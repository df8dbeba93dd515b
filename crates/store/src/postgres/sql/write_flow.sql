-- Writes a flow, all of it or nothing; false when it is there already.
select tidemill.write_flow($2::text::json, $3::text::json, coalesce($1::timestamptz, now()));
