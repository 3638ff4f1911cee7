-- Removes what has ended and was born before $1 (in the form of an id), at most $2 jobs
-- further than the last pass has come. One at a time: who finds another at it does
-- nothing.
with turn as (
    select swept_to from tickwheel.format for update skip locked
), span as (
    select id, state from tickwheel.job
    where id > (select swept_to from turn) and id < $1::text
    order by id
    limit $2::int4
), ended as ( -- what is locked expire.sql has later
    select j.id from tickwheel.job j join span s on s.id = j.id where s.state = 3
    order by j.id
    for update of j skip locked
), gone as (
    delete from tickwheel.job j using ended e where j.id = e.id
), mark as (
    update tickwheel.format
    set swept_to = case when (select count(*) from span) = $2::int4 then (select max(id) from span) else $1::text end
    where exists (select from turn)
)
select count(*) from span
