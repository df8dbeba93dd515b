-- What was done with a run from outside, in order.
select at, act, step, by, why, was, became, other from tidemill_run_act where job = ?1 order by number
