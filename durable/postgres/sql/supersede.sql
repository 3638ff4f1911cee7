-- Ends the job that waits under the key of job $1, and is older. A newer one was stored, and has begun, while the
-- end of the older one was being stored.
update tickwheel.job o
set state = 3, holder = null, held_until = null, key = null, ord = null, payload = '', last_error = '', errors = null, occurrence = null, signal = null
from tickwheel.job j
where j.id = $1::text and o.key = j.given_key and o.state = 0 and (o.ord, o.id) < (j.ord, j.id)
returning o.id
