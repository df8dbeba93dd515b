-- The rules that redrive by themselves.
select rule::text from tidemill.redrive_rule order by name;
