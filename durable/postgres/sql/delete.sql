-- Deletes a dead job, or one that was retained, and returns it. For what is removed and what is left see finish.sql;
-- due is when expire.sql may remove what is left.
with locked as (
    select id, born < clock_timestamp() - $2::int8 * interval '1 microsecond' and (j.ord is null or not exists ( -- the last of its key: finish.sql
        select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) < (j.ord, j.id) and o.state < 2)) as old
    from tickwheel.job j
    where id = $1::text and state in (2, 4, 5) and due > now()
    for update
), left_behind as (
    update tickwheel.job j
    set state = 3, due = now(), payload = '', last_error = '', errors = null, occurrence = null, ending = null
    from locked l where j.id = l.id and not l.old
), gone as (
    delete from tickwheel.job j using locked l where j.id = l.id and l.old
)
select id from locked
