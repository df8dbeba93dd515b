-- Debts of runs that ended otherwise than well, after one of them.
select d.job, d.number from tidemill.debt d where d.number > $1::int8 order by d.number limit $2::int8;
