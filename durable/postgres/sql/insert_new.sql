-- Stores records without a key, and fails if one of them is stored already: then insert.sql stores
-- the others. One that was born longer ago than ended jobs are remembered is left out, as there.
-- The arrays are unnested in the select list, which yields row by row. In "from" the server would
-- first store the rows of each array.
insert into tickwheel.job (
    id, kind, payload, at, due, born, max_attempts, version, attempt, last_error, schedule,
    occurrence, lane, priority, meta, timeout, expires, flags, retain)
select r.id, r.kind, coalesce(r.payload, ''), r.due, r.due, r.born, r.max_attempts, 0, 0, '', coalesce(r.m->>'schedule', ''),
    r.m->>'occurrence', r.m->>'lane', (r.m->>'priority')::int2, (r.m->>'meta')::jsonb, (r.m->>'timeout')::int8,
    (r.m->>'expires')::timestamptz, (r.m->>'flags')::int2, (r.m->>'retain')::int8
from (
    select unnest($2::text[]) as id, unnest($3::text[]) as kind, unnest($4::bytea[]) as payload, unnest($5::timestamptz[]) as due,
        unnest($6::timestamptz[]) as born, unnest($7::int4[]) as max_attempts, unnest($8::jsonb[]) as m
) as r
where r.born > (select clock_timestamp() - $1::int8 * interval '1 microsecond')
