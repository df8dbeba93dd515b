-- Mail that was taken before its run continued anew is kept for its id alone.
update tidemill_mail set content = '"taken"', bytes = null where job = ?1 and number = ?2
