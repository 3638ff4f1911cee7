-- Ends jobs that wait, and returns them. What has a retain is kept for so long, with the ending $3, unless that is null. For
-- what is removed and what is left see finish.sql.
with locked as (
    select id, retain > 0 and $3::jsonb is not null as retained, born < clock_timestamp() - $2::int8 * interval '1 microsecond' as old,
        j.claim > 0 and j.ord is not null and exists (
            select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) < (j.ord, j.id) and o.state < 2) as last
    from tickwheel.job j
    where id = any($1::text[]) and state = 0
    order by id
    for update
), left_behind as (
    update tickwheel.job j
    set state = 3, due = case when l.last then clock_timestamp() else j.due end, holder = null, held_until = null, key = null, ord = case when l.last then j.ord end, payload = '', last_error = '', errors = null, occurrence = null, signal = null
    from locked l where j.id = l.id and l.retained is not true and (l.last or not l.old)
), kept as (
    update tickwheel.job j
    set state = 5, holder = null, held_until = null, key = null, ord = case when l.last then j.ord end, last_due = j.due,
        due = clock_timestamp() + j.retain * interval '1 microsecond', occurrence = null, signal = null, ending = $3::jsonb,
        payload = case when j.flags & 4 <> 0 then j.payload else '' end
    from locked l where j.id = l.id and l.retained
), gone as (
    delete from tickwheel.job j using locked l where j.id = l.id and l.retained is not true and l.old and not l.last
)
select id from locked
