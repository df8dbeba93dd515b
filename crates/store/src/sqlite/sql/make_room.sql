-- Makes room for the jobs that an enqueue has written, in queues that are fuller now than their bounds, or refuses all.
insert into tidemill_room (queue, jobs, coming, band, now)
select inbox.queue, count(*), 0, max(inbox.priority), max(inbox.now)
from tidemill_inbox as inbox
join tidemill_bound as bound on bound.queue = inbox.queue
where inbox.receipt = ?1 and inbox.act = 'write' and bound.depth > bound.depth_max
group by inbox.queue
order by inbox.queue
