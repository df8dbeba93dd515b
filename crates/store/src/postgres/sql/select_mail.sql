-- The mail of a run after a number, in order: a page.
select m.number, m.at, m.content::text from tidemill.mail m
where m.job = $1::uuid and m.number > $2::int8 order by m.number limit $3::int8;
