-- A lease on the jobs of one claim; its token is larger than any given before, also than one that a
-- power cut took with its claim: a token is not behind the clock.
insert into tidemill_lease (token, worker, claimed_at, jobs, gates)
values (
    max(?2, 1 + coalesce((select seq from sqlite_sequence where name = 'tidemill_lease'), 0)),
    ?1, ?2, ?3, ?4
)
