-- Which edition of the rules holds, for a worker that is registered and was not given up.
select (select edition from tidemill_rulebook) from tidemill_worker where id = ?1
