-- What was done with a run from outside, in order.
select a.at, a.act, a.step, a.by_whom, a.why, a.was::text, a.became::text, a.other
from tidemill.run_act a where a.job = $1::uuid order by a.number;
