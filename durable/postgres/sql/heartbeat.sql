-- Renews a worker's lease, also of one that was taken for dead and forgotten, and returns
-- whether it was not over before, until when it is now, and whether the row was older than the worker knows.
-- It was over, too, if that was so
-- after the end $5 that the worker knows of: a heartbeat in between, whose answer was lost, may have
-- found it over, and the worker does not know. The clock is read with the row locked: who has taken jobs
-- over in between had it locked while the lease was over (claim.sql), or finds it renewed. There is no answer
-- if another worker has the id.
with locked as materialized (
    select until from tickwheel.worker where id = $1::int8 and name = $2::text for update
), before as materialized (
    select least(until, $5::timestamptz) > clock_timestamp() as alive from locked
), renewed as (
    insert into tickwheel.worker as w (id, name, until, kinds)
    select $1::int8, $2::text, clock_timestamp() + $3::int8 * interval '1 microsecond', coalesce($4::text[], '{}')
    from (select count(*) from before) as read -- before the row is changed
    on conflict (id) do update set until = excluded.until, freed = false where w.name = excluded.name
    returning until
)
select coalesce((select alive from before), false), until,
    coalesce((select until from locked), '-infinity') < $5::timestamptz
        and $5::timestamptz > clock_timestamp() - interval '1 day' as older -- a row is removed after a day
from renewed
