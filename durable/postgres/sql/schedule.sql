-- A schedule.
select name, definition, revision, last from tickwheel.schedule where name = $1::text
