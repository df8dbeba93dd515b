-- Runs that ended otherwise than well and owe something.
select d.job from tidemill.debt d order by d.job limit $1::int8;
