-- Takes its key from the job that waits under the key of job $1, if it has expired, or is older: a newer one was
-- stored, and has begun, while the end of the older one was being stored. An older one ends as done, as in finish.sql: one
-- with a retain is kept for so long, with the ending $2.
with locked as (
    select o.id, e.expired, o.retain > 0 as retained
    from tickwheel.job j join tickwheel.job o on o.key = j.given_key cross join lateral (
        select coalesce(o.expires <= clock_timestamp(), false) as expired
    ) as e
    where j.id = $1::text and o.state = 0 and (e.expired or (o.ord, o.id) < (j.ord, j.id))
    for update of o
), expired as (
    update tickwheel.job o set key = null, ord = case when o.claim > 0 then o.ord end
    from locked l where o.id = l.id and l.expired
), kept as (
    update tickwheel.job o
    set state = 4, holder = null, held_until = null, key = null, ord = null, last_due = o.due,
        due = clock_timestamp() + o.retain * interval '1 microsecond', occurrence = null, signal = null, ending = $2::jsonb,
        payload = case when o.flags & 4 <> 0 then o.payload else '' end
    from locked l where o.id = l.id and not l.expired and l.retained
), left_behind as (
    update tickwheel.job o
    set state = 3, due = clock_timestamp(), holder = null, held_until = null, key = null, ord = null, payload = '', last_error = '', errors = null, occurrence = null, signal = null
    from locked l where o.id = l.id and not l.expired and l.retained is not true
)
select id from locked
