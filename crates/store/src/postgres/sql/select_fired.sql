-- Which of these slots have fired.
select slot from tidemill.schedule_fire
where name = $1::text and slot = any ($2::timestamptz[]) and what = 0 and (how = 0 or how = 2);
