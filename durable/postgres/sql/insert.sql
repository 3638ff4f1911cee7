-- Stores records. One that is there already, or whose key another job has, is left out:
-- what was stored is returned. One that was born longer ago than ended jobs are remembered is left
-- out, too: it may have been stored, and have ended, before. For new jobs without a key insert_new.sql
-- does the same for less.
insert into tickwheel.job (
    id, key, given_key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, schedule,
    occurrence, lane, priority, meta, timeout, expires, flags, retain, ord)
select r.id, r.m->>'key', r.m->>'key', r.kind, coalesce(r.payload, ''), r.due, r.due, r.born,
    r.max_attempts, 0, 0, '', coalesce(r.m->>'schedule', ''), r.m->>'occurrence', r.m->>'lane', (r.m->>'priority')::int2,
    (r.m->>'meta')::jsonb, (r.m->>'timeout')::int8, (r.m->>'expires')::timestamptz, (r.m->>'flags')::int2, (r.m->>'retain')::int8,
    case when r.m->>'key' is not null then 1 + coalesce((select max(o.ord) from tickwheel.job o where o.given_key = r.m->>'key'), 0) end
from unnest($2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::timestamptz[], $7::int4[], $8::jsonb[])
    with ordinality
    as r(id, kind, payload, due, born, max_attempts, m, n)
where r.born > clock_timestamp() - $1::int8 * interval '1 microsecond'
order by r.m->>'key', r.n -- who waits for another's keys does so in one order; the first has the key
on conflict do nothing
returning id
