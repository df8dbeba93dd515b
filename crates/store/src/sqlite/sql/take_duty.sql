-- A duty has one holder at a time, until it expires.
insert into tidemill_duty (name, holder, until) values (?1, ?2, ?3)
on conflict (name) do update set holder = excluded.holder, until = excluded.until
where tidemill_duty.holder = excluded.holder or tidemill_duty.until <= ?4
