-- The next page of the schedules, after name $1.
select name, plan, revision, last from tickwheel.series
where name > $1::text and plan <> ''
order by name
limit $2::int4
