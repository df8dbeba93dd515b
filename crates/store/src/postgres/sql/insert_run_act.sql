-- Keeps who did what with a run, and why; once per id.
insert into tidemill.run_act (id, job, at, act, step, by_whom, why, was, became, other)
values ($2::uuid, $3::uuid, coalesce($1::timestamptz, now()), $4::text, $5::text, $6::text, $7::text,
    $8::text::json, $9::text::json, $10::uuid);
