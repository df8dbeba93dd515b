-- The rules of the queues that have some, by name.
select name, rules from tidemill_queue order by name
