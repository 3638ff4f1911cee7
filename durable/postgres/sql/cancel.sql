-- Ends jobs that wait, and returns them. For what is removed and what is left see
-- finish.sql.
with locked as (
    select id, born < clock_timestamp() - $2::int8 * interval '1 microsecond' as old
    from tickwheel.job
    where id = any($1::text[]) and state = 0
    order by id
    for update
), left_behind as (
    update tickwheel.job j
    set state = 3, holder = null, held_until = null, key = null, payload = '', last_error = '', errors = null, occurrence = null, signal = null
    from locked l where j.id = l.id and not l.old
), gone as (
    delete from tickwheel.job j using locked l where j.id = l.id and l.old
)
select id from locked
