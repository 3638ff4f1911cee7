-- Stores records with a key, whose on_key decides about the job that waits under it: 1,
-- replace, and 2, later, end it; 3, keep, leaves it and stores nothing, as 0, refuse, does. The first of the records
-- with one key has its turn. A record that exists already, or was born too long ago, is left out: see
-- insert.sql. The row of each other record has the job that has the key now, null if that is
-- another's; the job that has waited; and whether the key is taken: by a claimed job, or for 0 by any.
--
-- A waiting job that is due is not ended: the record goes into it, as its next version. If another one has done so less
-- than a second ago, the job is about to be claimed, and the row says so; the keys $9 are those that the caller has done it for.
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
    select j.id, coalesce(j.first_born, j.born) as first_born, a.id as by, a.on_key, j.due as was_due, j.signal, t.*
    from tickwheel.job j join asked a on a.key = j.key cross join lateral (
        select coalesce(j.expires <= clock_timestamp(), false) as expired,
            a.on_key between 1 and 2 and coalesce(j.expires > clock_timestamp(), true) and j.due <= greatest(a.born, clock_timestamp()) as due,
            coalesce(a.key <> all ($9::text[]) and j.filled between clock_timestamp() - interval '1 second' and clock_timestamp(), false) as filled,
            j.claim > 0 and exists ( -- the last of its key: finish.sql
                select from tickwheel.job o where o.given_key = j.given_key and o.ord is not null and (o.ord, o.id) < (j.ord, j.id) and o.state < 2) as last
    ) as t
    where j.state = 0 and (a.on_key > 0 or j.expires <= clock_timestamp())
    order by j.id
    for update of j
), ended as ( -- due is when expire.sql may remove it: sweep.sql may have passed it
    update tickwheel.job j
    set state = 3, due = clock_timestamp(), holder = null, held_until = null, key = null, ord = case when w.last then j.ord end, payload = '', last_error = '', errors = null, occurrence = null, signal = null
    from waits w where j.id = w.id and w.on_key < 3 and not w.expired and not w.due
    returning j.id, w.by, w.first_born, w.was_due as due, w.signal
), aside as (
    update tickwheel.job j set key = null, ord = case when j.claim > 0 then j.ord end
    from waits w where j.id = w.id and w.expired
    returning j.id, w.by
), filled as (
    update tickwheel.job j
    set kind = a.kind, payload = coalesce(a.payload, ''), max_attempts = a.max_attempts, lane = a.m->>'lane',
        priority = (a.m->>'priority')::int2, meta = (a.m->>'meta')::jsonb, timeout = (a.m->>'timeout')::int8,
        expires = (a.m->>'expires')::timestamptz, flags = (a.m->>'flags')::int2, retain = (a.m->>'retain')::int8, schedule = coalesce(a.m->>'schedule', ''),
        version = j.version + 1, attempt = 0, last_error = '', errors = null, holder = null, held_until = null,
        signal = case when (a.m->>'flags')::int2 & 2 <> 0 then j.signal end, filled = clock_timestamp()
    from waits w join asked a on a.id = w.by where j.id = w.id and w.due and not w.filled
    returning j.id, w.by
), known as ( -- so that it is recognized if it is inserted again
    insert into tickwheel.job (id, kind, payload, at, due, born, max_attempts, version, attempt, last_error, schedule, state, occurrence)
    select a.id, a.kind, '', a.due, a.born, a.born, 1, 0, 0, '', '', 3, f.id
    from filled f join asked a on a.id = f.by
    on conflict do nothing
), stored as (
    insert into tickwheel.job (
        id, key, given_key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, schedule,
        occurrence, lane, priority, meta, timeout, expires, flags, retain, first_born, ord, signal)
    select a.id, a.key, a.key, a.kind, coalesce(a.payload, ''), t.due, case when s.signal is null then t.due else least(t.due, greatest(e.due, a.born)) end, a.born,
        a.max_attempts, 0, 0, '', coalesce(a.m->>'schedule', ''), a.m->>'occurrence', a.m->>'lane', (a.m->>'priority')::int2,
        (a.m->>'meta')::jsonb, (a.m->>'timeout')::int8, (a.m->>'expires')::timestamptz, (a.m->>'flags')::int2, (a.m->>'retain')::int8,
        case when a.on_key = 2 and e.id is not null then least(e.first_born, a.born) end,
        1 + coalesce((select max(o.ord) from tickwheel.job o where o.given_key = a.key), 0), s.signal
    from asked a left join ended e on e.by = a.id left join aside x on x.by = a.id cross join lateral (
        select case when (a.m->>'flags')::int2 & 2 <> 0 then e.signal end as signal
    ) as s cross join lateral (
        select case when a.on_key = 2 and a.max_wait > 0 and e.id is not null
            then greatest(a.born, least(a.due, least(e.first_born, a.born) + a.max_wait * interval '1 microsecond')) else a.due end as due
    ) as t
    where not exists (select from waits w where w.by = a.id and not w.expired and (w.on_key = 3 or w.due))
    order by a.key
    on conflict do nothing
    returning id
)
select a.id, a.key, coalesce(s.id, f.id, case when w.on_key = 3 and not w.expired then w.id end) as holder, case when not w.expired then w.id end as found,
    exists (select from tickwheel.job j where j.key = a.key and (j.state = 1 or a.on_key = 0)) as taken,
    coalesce(w.due and w.filled, false) as begins
from asked a left join stored s on s.id = a.id left join filled f on f.by = a.id left join waits w on w.by = a.id
