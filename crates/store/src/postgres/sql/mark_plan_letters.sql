-- What became of letters of a plan: $4 of those in $3, else $5.
update tidemill.plan_letter
set fate = case when id = any ($3::uuid[]) then $4::int2 else $5::int2 end
where plan = $1::uuid and id = any ($2::uuid[]);
