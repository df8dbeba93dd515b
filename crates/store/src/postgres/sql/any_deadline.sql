-- Whether there is a deadline to look at by now.
select exists (select from tidemill.deadline d where d.at <= coalesce($1::timestamptz, now()));
