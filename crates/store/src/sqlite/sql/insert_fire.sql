-- Writes down what became of a slot; fails when it has fired before.
insert into tidemill_schedule_fire (name, slot, until, slots, what, how, job, jobs, at)
values (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?1)
