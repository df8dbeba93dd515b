-- The journal of a run, in order.
select j.number, j.at, j.entry::text from tidemill.journal j where j.job = $1::uuid order by j.number;
