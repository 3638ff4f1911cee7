-- Removes dead jobs whose retention is over, what a pass of sweep.sql has missed because
-- its end was committed late, and workers that have been dead for a day. Old enough is
-- what was born before $1.
with late as (
    select id from tickwheel.job
    where due <= now() and state in (2, 3) and id < $1::text
    order by due
    limit $2::int4
    for update skip locked
), workers as (
    delete from tickwheel.worker where until < now() - interval '1 day'
)
delete from tickwheel.job j using late l where j.id = l.id
