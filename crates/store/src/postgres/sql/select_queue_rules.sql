-- The rules of the queues that have some, behind the edition they are of; a name of null where none has.
select b.edition, q.name, q.rules::text, q.version from tidemill.rulebook b left join tidemill.queue q on true
order by q.name;
