-- Whether a run, which is locked, is dead with nothing of it undone or to be undone.
select from tidemill.run r
where r.job = $1::uuid and not r.undone
    and exists (select from tidemill.dead d where d.id = r.job)
    and not exists (select from tidemill.debt d where d.job = r.job);
