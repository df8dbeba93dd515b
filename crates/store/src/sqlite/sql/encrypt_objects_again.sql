-- Encrypts values of object anew, unless they have changed since they were read.
update tidemill_object
set state = ?3
where queue = substr(?1, 1, instr(?1, char(31)) - 1) and key = substr(?1, instr(?1, char(31)) + 1)
    and state is ?5 and ?2 is not null and ?4 is null and ?6 is null
