-- Those of these children of whose end a run was told.
select (m.content -> 'child' ->> 'id')::uuid from tidemill.mail m
where m.job = $1::uuid and m.content -> 'child' ->> 'id' = any ($2::text[]);
