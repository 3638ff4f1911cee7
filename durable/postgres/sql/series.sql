-- A schedule.
select name, plan, revision, last from tickwheel.series where name = $1::text
