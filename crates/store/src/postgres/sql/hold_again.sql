-- Jobs of a flow that were sent again in this transaction, of these of its steps, wait in these for a place, behind all
-- others; answers how many of each. The flow's lock is held. One that takes its turn in a line stays in it. A step whose
-- jobs waited for the clock counts like others from now on: all of them were let go, and those that come again have waited.
with held as (
    update tidemill.job j set place = j.sheaf
    from tidemill.flow_step s
    where j.id = any ($1::uuid[]) and j.sheaf > 0
        and s.flow = j.flow and s.number = j.step and s.number = any ($2::int4[]) and (not s.slow or s.state > 1)
    returning j.flow, j.step, j.sheaf
), gone as (
    delete from tidemill.ready r using held h where r.seq = h.sheaf
), plain as (
    update tidemill.flow_step s set slow = false, opened = 0
    from (select distinct h.flow, h.step from held h) h
    where s.flow = h.flow and s.number = h.step and s.slow
)
select h.step, count(*) from held h group by h.step;
