-- Changes when a job is due that waits. Its holder finds it gone.
update tickwheel.job
set due = $2::timestamptz, version = version + 1, holder = null, held_until = null
where id = $1::text and state = 0
returning id
