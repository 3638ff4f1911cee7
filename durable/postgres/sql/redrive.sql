-- Has a dead job wait again, with its key.
update tickwheel.job
set state = 0, due = $2::timestamptz, version = version + 1, attempt = 0, key = given_key, last_due = null, expires = null
where id = $1::text and state = 2 and due > now()
returning id
