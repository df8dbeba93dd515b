-- The rules of the queues that have some.
select name, rules::text, version from tidemill.queue order by name;
