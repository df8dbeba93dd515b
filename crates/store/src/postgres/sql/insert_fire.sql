-- Writes down what became of a slot; fails when it has fired before.
insert into tidemill.schedule_fire (name, slot, until, slots, what, how, job, jobs, at)
values ($2::text, $3::timestamptz, $4::timestamptz, $5::int8, $6::int2, $7::int2, $8::uuid, $9::int4,
    coalesce($1::timestamptz, now()));
