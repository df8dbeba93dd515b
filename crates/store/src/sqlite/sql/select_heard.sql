-- Whether a run was told of the end of this child.
select 1 from tidemill_mail where job = ?1 and json_extract(content, '$.child.id') = ?2
