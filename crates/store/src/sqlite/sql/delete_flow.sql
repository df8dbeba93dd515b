-- Forgets a flow whose jobs are forgotten.
delete from tidemill_flow where id = ?1
