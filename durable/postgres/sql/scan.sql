-- The next page of the jobs that are kept, after id $1, of state $2 (-1: any) and kind $3
-- ('': any) and lane $5 ('': any).
select id, given_key, kind, payload, at, max_attempts, state, least(attempt, max_attempts), coalesce(last_due, due), last_error,
    coalesce(lane, ''), coalesce(priority, 0), meta, coalesce(timeout, 0), expires, errors, coalesce(flags, 0), coalesce(retain, 0), ending,
    case when state = 1 then (select w.name from tickwheel.worker w where w.id = holder) end
from tickwheel.job
where id > $1::text and (state < 2 or state <> 3 and due > now())
    and ($2::int2 = -1 or state = $2::int2) and ($3::text = '' or kind = $3::text) and ($5::text = '' or lane = $5::text)
order by id
limit $4::int4
