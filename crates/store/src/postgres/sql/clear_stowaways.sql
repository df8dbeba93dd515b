-- Other rules: who is a stowaway is found anew. Answers the gates that hold somebody beside one: it may have ended, and
-- then nobody would look there any more.
with cleared as (delete from tidemill.stowaway returning base, gate)
select distinct c.base, c.gate from cleared c
where exists (select from tidemill.ready r where r.line = 2 and r.gate = c.gate);
