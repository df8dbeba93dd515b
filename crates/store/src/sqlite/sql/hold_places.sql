-- A job that is called off before it was let go counts as under way until its end is counted. One that was let go (it has
-- a time) counts already, wherever its step has come to: that goes back when others of it are sent again.
update tidemill_flow set jobs_open = jobs_open + 1
where id = ?1 and exists (
    select 1 from tidemill_flow_step where flow = ?1 and number = ?2 and state < 2 and opened < ?3
) and exists (select 1 from tidemill_job where id = ?3 and run_at = 0)
