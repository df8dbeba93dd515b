-- Gives steps of a flow more jobs, whose flow's lock is held; answers the flow's number of jobs that are new.
with written as (
    select w.step, w.number from tidemill.write_flow_jobs($2::uuid, $3::text::json, coalesce($1::timestamptz, now())) w
), grown as (
    update tidemill.flow_step s set jobs = s.jobs + w.number, "left" = s."left" + w.number
    from written w where s.flow = $2 and s.number = w.step
)
select coalesce(sum(number), 0)::int8 from written;
