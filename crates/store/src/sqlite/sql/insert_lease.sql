-- A lease on the jobs of one claim; its token is larger than any given before.
insert into tidemill_lease (worker, claimed_at, jobs) values (?1, ?2, ?3)
