-- The rules of the queues that have some, by name, behind the edition they are of; a name of null where none has.
select edition, name, rules, version from tidemill_rulebook left join tidemill_queue on true order by name
