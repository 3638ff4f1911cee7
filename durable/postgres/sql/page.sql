-- Up to $7 jobs of state $3 and kind $4 ('': any) and lane $5 ('': any) after id $2 of those
-- due at $1, by when they are due, of dead ones by when they are forgotten; with what they are
-- sorted by. Of each kind they come in the order of the index. What runs is due no later
-- than soon. $6 is of page_by_meta.sql.
with recursive kinds as ( -- that there are, by one step in the index for each
    (select kind from tickwheel.job where $4::text = '' or kind = $4::text order by kind limit 1)
    union all
    select (select j.kind from tickwheel.job j where j.kind > k.kind and $4::text = '' order by j.kind limit 1)
    from kinds k where k.kind is not null
)
select j.id, given_key, j.kind, payload, at, max_attempts, state, least(attempt, max_attempts), coalesce(last_due, due), last_error,
    coalesce(lane, ''), coalesce(priority, 0), meta, coalesce(timeout, 0), expires, errors, coalesce(flags, 0), coalesce(retain, 0), ending,
    case when state = 1 then (select w.name from tickwheel.worker w where w.id = holder) end, due
from kinds k cross join lateral (
    select * from tickwheel.job j
    where j.kind = k.kind and j.due >= $1::timestamptz and (j.due, j.id) > ($1::timestamptz, $2::text)
        and j.state = $3::int2 and (j.state < 2 or j.due > now())
        and (j.state <> 1 or j.due < now() + interval '1 minute')
        and ($5::text = '' or j.lane = $5::text) and $6::jsonb is null
    order by j.due, j.id
    limit $7::int4
) as j
where k.kind is not null
order by j.due, j.id
limit $7::int4
