-- Keeps an attempt. Without started_at, or lost, it was the store that ended it, and its token is stale.
insert into tidemill_attempt (
    id, token, attempt, worker, started_at, ended_at, class, error, next_at
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
