-- Workers that leases name and nobody knows: there should be none.
select distinct l.worker from tidemill.lease l
where not exists (select from tidemill.worker w where w.id = l.worker);
