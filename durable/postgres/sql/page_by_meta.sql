-- page.sql of the jobs that have all of $6 in their meta: by the index on that, which takes
-- a bitmap.
with found as materialized (
    select id from tickwheel.job where meta is not null and meta @> $6::jsonb
)
select j.id, given_key, kind, payload, at, max_attempts, state, least(attempt, max_attempts), coalesce(last_due, due), last_error,
    coalesce(lane, ''), coalesce(priority, 0), meta, coalesce(timeout, 0), expires, errors, coalesce(flags, 0), coalesce(retain, 0), ending,
    case when state = 1 then (select w.name from tickwheel.worker w where w.id = holder) end, due
from tickwheel.job j join found f on f.id = j.id
where (j.due, j.id) > ($1::timestamptz, $2::text) and j.state = $3::int2 and (j.state < 2 or j.due > now())
    and ($4::text = '' or kind = $4::text) and ($5::text = '' or lane = $5::text)
order by j.due, j.id
limit $7::int4
