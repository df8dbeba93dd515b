-- Counts a piece of mail; says whether it wakes its run, which then waits no more. One that went on by itself meanwhile
-- does not wait for it.
update tidemill_run set mail = mail + 1, unread = unread + (?2 is not null), unread_bytes = unread_bytes + coalesce(?2, 0),
    wake_at = case
        when wake_at <= mail + 1 and parked is null and not paused
            and wake_token = (select max(token) from tidemill_attempt where id = ?1) then null
        else wake_at
    end
where job = ?1
returning wake_at is null
