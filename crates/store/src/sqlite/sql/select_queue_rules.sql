-- The rules of the queues that have some, by name.
select name, rules, version from tidemill_queue order by name
