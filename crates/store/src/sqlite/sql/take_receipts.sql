-- Takes the receipts of one enqueue out of the inbox.
delete from tidemill_inbox where receipt = ?1 returning number, answer, answer_id
