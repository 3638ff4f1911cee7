-- Takes its key from the job that waits under the key of job $1, if it has expired, or is older: a newer one was
-- stored, and has begun, while the end of the older one was being stored. An older one ends.
update tickwheel.job o
set key = null, ord = null, state = case when e.expired then 0 else 3 end, holder = case when e.expired then o.holder end,
    held_until = case when e.expired then o.held_until end, payload = case when e.expired then o.payload else '' end
from tickwheel.job j cross join lateral (select clock_timestamp() as now) as t cross join lateral (
    select coalesce(x.expires <= t.now, false) as expired from tickwheel.job x where x.key = j.given_key and x.state = 0
) as e
where j.id = $1::text and o.key = j.given_key and o.state = 0 and (e.expired or (o.ord, o.id) < (j.ord, j.id))
returning o.id
