-- Puts a piece of mail behind the last of its run; one that is sent again is there.
insert into tidemill_mail (job, number, at, sent, content, bytes)
select job, mail + 1, ?2, ?3, ?4, ?5 from tidemill_run where job = ?1
on conflict do nothing
