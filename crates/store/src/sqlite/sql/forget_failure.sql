-- Forgets the last failure of a run, so that it is tried again from there.
delete from tidemill_journal where job = ?1 and number = (
    select max(number) from tidemill_journal
    where job = ?1 and json_extract(entry, '$.ended.ending.err') is not null)
