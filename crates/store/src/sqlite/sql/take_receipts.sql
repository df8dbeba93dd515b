-- Takes the receipts of one enqueue out of the inbox.
delete from tidemill_inbox where receipt = ?1
returning
    number,
    case act
        when 'again' then 'enqueued' when 'write' then 'enqueued' when 'keep' then 'kept'
        when 'replace' then 'replaced' when 'reject' then 'rejected'
        when 'unreached' then 'unreached' else 'joined'
    end,
    case act
        when 'again' then id when 'write' then id when 'keep' then id when 'refresh' then next_id
        else holder
    end
