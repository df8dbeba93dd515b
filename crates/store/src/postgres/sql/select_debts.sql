-- Runs that ended otherwise than well and owe something, after one of them.
select d.job from tidemill.debt d where d.job > $1::uuid order by d.job limit $2::int8;
