-- Whether there may be stowaways anywhere, which is rare.
select exists (select 1 from tidemill_stowaway)
