-- A run whose debt this is is undone from now on: it cannot go on. Nothing, if the debt was paid.
with debt as materialized (
    select d.job from tidemill.debt d where d.job = $1::uuid and d.number = $2::int8 for update
)
update tidemill.run r set undone = true from debt d where r.job = d.job returning 1;
