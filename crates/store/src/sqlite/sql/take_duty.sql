-- A duty has one holder at a time, until it expires; answers since when it has had it without a gap.
insert into tidemill_duty (name, holder, until, since) values (?1, ?2, ?3, ?4)
on conflict (name) do update set holder = excluded.holder, until = excluded.until,
    since = iif(tidemill_duty.holder = excluded.holder and tidemill_duty.until > ?4, tidemill_duty.since, ?4)
where tidemill_duty.holder = excluded.holder or tidemill_duty.until <= ?4
returning since
