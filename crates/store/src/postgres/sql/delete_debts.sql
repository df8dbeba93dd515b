-- What these runs owed was seen to; some of them are undone from now on.
with undone as (
    update tidemill.run r set undone = true
    from unnest($1::uuid[], $2::boolean[]) u(job, undone) where r.job = u.job and u.undone
)
delete from tidemill.debt d where d.job = any ($1);
