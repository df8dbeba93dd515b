-- The rules that redrive by themselves, by name.
select rule from tidemill_redrive_rule order by name
