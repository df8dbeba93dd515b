-- Whether a slot has fired.
select 1 from tidemill_schedule_fire
where name = ?1 and slot = ?2 and what = 0 and (how = 0 or how = 2)
