-- Other rules: who is a stowaway is found anew.
delete from tidemill_stowaway
