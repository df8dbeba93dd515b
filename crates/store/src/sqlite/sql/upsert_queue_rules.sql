-- Sets the rules of a queue.
insert or replace into tidemill_queue (name, rules) values (?1, ?2)
