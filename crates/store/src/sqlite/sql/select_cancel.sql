-- Why a running job was called off, if it was.
select reason from tidemill_cancel where token = ?1 and id = ?2
