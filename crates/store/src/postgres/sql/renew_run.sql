-- Lets a run continue anew: its next turn, with another payload, an empty journal, and the mail that nobody took. Ids
-- of mail that was taken are known until it continues once more; the last piece stays, so that it is known up to where
-- mail was read. Nothing of its journal is another run's now.
with last as materialized (
    select r.mail as number from tidemill.run r where r.job = $1::uuid
), emptied as (
    delete from tidemill.journal j where j.job = $1
), forgotten as (
    delete from tidemill.mail m using last where m.job = $1 and m.number = any ($4::int8[]) and m.number < last.number
        and (m.sent is null or m.content::text = '"taken"')
), taken as (
    update tidemill.mail m set content = '"taken"', bytes = null from last where m.job = $1 and m.number = any ($4)
        and (m.sent is not null or m.number = last.number) and m.content::text <> '"taken"'
), body as (
    update tidemill.job b set payload = $2::text::json, options = (
        coalesce(b.options::jsonb, '{}') - 'origins'
        || jsonb_build_object('turn', coalesce((b.options ->> 'turn')::int8, 0) + 1)
    )::json
    where b.id = $1
), unread as (
    select count(*) as signals, coalesce(sum(m.bytes), 0)::int8 as bytes
    from tidemill.mail m left join (select distinct t from unnest($4) t) t on t.t = m.number
    where m.job = $1 and m.bytes is not null and t.t is null
)
update tidemill.run r set version = $3::text, owes = false, unread = u.signals, unread_bytes = u.bytes
from unread u where r.job = $1;
