-- What a caller decided for this attempt, once: whoever takes it carries it out in this transaction.
delete from tidemill_decided where id = ?1 and token = ?2 returning output, follow_ups
