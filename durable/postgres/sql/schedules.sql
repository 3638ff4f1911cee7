-- The next page of the schedules, after name $1.
select name, definition, revision, last from tickwheel.schedule
where name > $1::text and definition <> ''
order by name
limit $2::int4
