-- Records what an effect came to, once, in the transaction that took its mark.
update tidemill_effect set output = $2::text::json, recorded_at = now() where key = $1 and output is null
returning key
