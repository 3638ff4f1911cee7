-- Changes when a job is due that waits. Whoever has it in hand finds it gone.
update tickwheel.job
set due = $2::timestamptz, version = version + 1, holder = null, hand = null
where id = $1::text and state = 0
returning id
