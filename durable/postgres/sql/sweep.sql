-- Removes what has ended and was born before $1 (in the form of an id), at most $2 jobs
-- further than the last pass has come. One pass at a time: another one that finds the row locked does
-- nothing.
with turn as (
    select swept_to from tickwheel.format for update skip locked
), passed as (
    select id, state from tickwheel.job
    where id > (select swept_to from turn) and id < $1::text
    order by id
    limit $2::int4
), ended as ( -- what is locked expire.sql has later
    select j.id from tickwheel.job j join passed p on p.id = j.id where p.state = 3
        and (j.ord is null or not exists ( -- the last of its key: finish.sql
            select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) < (j.ord, j.id) and o.state < 2))
    order by j.id
    for update of j skip locked
), gone as (
    delete from tickwheel.job j using ended e where j.id = e.id
), advanced as (
    update tickwheel.format
    set swept_to = case when (select count(*) from passed) = $2::int4 then (select max(id) from passed) else $1::text end
    where exists (select from turn)
)
select count(*) from passed
