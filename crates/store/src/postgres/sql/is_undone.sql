-- Whether what a run did is undone, is being undone, or is still to be seen to.
select from tidemill.run r
where r.job = $1::uuid and (r.undone or exists (select from tidemill.debt d where d.job = r.job));
