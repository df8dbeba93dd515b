-- Encrypts values of flow_step anew, unless they have changed since they were read.
update tidemill_flow_step
set undo = ?3
where flow = unhex(replace(?1, '-', '')) and number = ?2
    and undo is ?5 and ?4 is null and ?6 is null
