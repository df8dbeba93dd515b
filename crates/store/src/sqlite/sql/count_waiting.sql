-- How many jobs wait, by queue, band and kind, and whether they wait for a slot or the clock.
select queue, priority % 10, kind, run_at <= ?1, count(*), min(run_at)
from tidemill_ready
group by queue, priority % 10, kind, run_at <= ?1
