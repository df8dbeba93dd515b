-- Lets a run continue anew: with another payload, an empty journal, and the mail that nobody took. Ids of mail that was
-- taken are known until it continues once more.
with emptied as (
    delete from tidemill.journal j where j.job = $1::uuid
), forgotten as (
    delete from tidemill.mail m where m.job = $1 and m.number = any ($4::int8[])
        and (m.sent is null or m.content::text = '"taken"')
), taken as (
    update tidemill.mail m set content = '"taken"' where m.job = $1 and m.number = any ($4)
        and m.sent is not null and m.content::text <> '"taken"'
), body as (
    update tidemill.job b set payload = $2::text::json where b.id = $1
)
update tidemill.run r set version = $3::text, owes = false where r.job = $1;
