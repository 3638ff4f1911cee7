-- Stores records with a key, whose on_key decides about the job that waits under it: 1,
-- replace, and 2, later, end it; 3, keep, leaves it and stores nothing, as 0, refuse, does. The first of the records
-- with one key has its turn. A record that exists already, or was born too long ago, is left out: see
-- insert.sql. The row of each other record has the job that has the key now, null if that is
-- another's; the job that has waited; and whether the key is taken: by a claimed job, or for 0 by any.
--
-- A waiting job that has expired leaves its key to any record. With 1 and 2 a record that takes signals has the
-- signal of the job that it ends, and is due no later than that.
--
-- A waiting job is locked before it is ended: a change or a claim that came first wins, and the job
-- is no longer found by its key.
with asked as materialized (
    select distinct on (r.m->>'key') r.*, r.m->>'key' as key, coalesce((r.m->>'on_key')::int4, 0) as on_key,
        coalesce((r.m->>'max_wait')::int8, 0) as max_wait
    from unnest($2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::timestamptz[], $7::int4[], $8::jsonb[])
        with ordinality
        as r(id, kind, payload, due, born, max_attempts, m, n)
    where r.born > clock_timestamp() - $1::int8 * interval '1 microsecond'
        and not exists (select from tickwheel.job j where j.id = r.id)
    order by r.m->>'key', r.n
), waits as materialized (
    select j.id, coalesce(j.first_born, j.born) as first_born, a.id as by, a.on_key, j.due, j.signal,
        coalesce(j.expires <= clock_timestamp(), false) as expired
    from tickwheel.job j join asked a on a.key = j.key
    where j.state = 0 and (a.on_key > 0 or j.expires <= clock_timestamp())
    order by j.id
    for update of j
), ended as (
    update tickwheel.job j
    set state = 3, holder = null, held_until = null, key = null, ord = null, payload = '', last_error = '', errors = null, occurrence = null, signal = null
    from waits w where j.id = w.id and w.on_key < 3 and not w.expired
    returning j.id, w.by, w.first_born, w.due, w.signal
), aside as (
    update tickwheel.job j set key = null, ord = null
    from waits w where j.id = w.id and w.expired
    returning j.id, w.by
), stored as (
    insert into tickwheel.job (
        id, key, given_key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, schedule,
        occurrence, lane, priority, meta, timeout, expires, flags, first_born, ord, signal)
    select a.id, a.key, a.key, a.kind, coalesce(a.payload, ''), t.due, case when s.signal is null then t.due else least(t.due, greatest(e.due, a.born)) end, a.born,
        a.max_attempts, 0, 0, '', coalesce(a.m->>'schedule', ''), a.m->>'occurrence', a.m->>'lane', (a.m->>'priority')::int2,
        (a.m->>'meta')::jsonb, (a.m->>'timeout')::int8, (a.m->>'expires')::timestamptz, (a.m->>'flags')::int2,
        case when a.on_key = 2 and e.id is not null then least(e.first_born, a.born) end,
        1 + coalesce((select max(o.ord) from tickwheel.job o where o.given_key = a.key), 0), s.signal
    from asked a left join ended e on e.by = a.id left join aside x on x.by = a.id cross join lateral (
        select case when (a.m->>'flags')::int2 & 2 <> 0 then e.signal end as signal
    ) as s cross join lateral (
        select case when a.on_key = 2 and a.max_wait > 0 and e.id is not null
            then greatest(a.born, least(a.due, least(e.first_born, a.born) + a.max_wait * interval '1 microsecond')) else a.due end as due
    ) as t
    where not exists (select from waits w where w.by = a.id and w.on_key = 3 and not w.expired)
    order by a.key
    on conflict do nothing
    returning id
)
select a.id, a.key, coalesce(s.id, case when w.on_key = 3 and not w.expired then w.id end) as holder, case when not w.expired then w.id end as found,
    exists (select from tickwheel.job j where j.key = a.key and (j.state = 1 or a.on_key = 0)) as taken
from asked a left join stored s on s.id = a.id left join waits w on w.by = a.id
