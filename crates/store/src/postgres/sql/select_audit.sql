-- A page of the record of acts, newest first. Every condition given must hold.
select a.id, a.at, a.who, a.credential, a.act, a.target_kind, a.target, a.detail, a.ended_at, a.result
from tidemill.audit a
where a.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    and ($2::text is null or a.who = $2) and ($3::text is null or a.act = $3) and ($4::text is null or a.target = $4)
    and ($5::timestamptz is null or a.at >= $5) and ($6::timestamptz is null or a.at < $6)
order by a.id desc limit $7::int8;
