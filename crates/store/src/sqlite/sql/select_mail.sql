-- The mail of a run after a number, in order: a page.
select number, at, content from tidemill_mail where job = ?1 and number > ?2 order by number limit ?3
