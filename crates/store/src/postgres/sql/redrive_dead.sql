-- Sends dead letters on their way again, all attempts unspent. Answers those that were dead and now are ready.
select id, queue from tidemill.replay($2::uuid[], $3::text, $4::text::json, coalesce($1::timestamptz, now()));
