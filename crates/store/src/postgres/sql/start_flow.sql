-- Writes a flow in the caller's own transaction; false when it is there already.
select tidemill.start_flow($1::text::json, $2::text::json, now());
