-- Has a dead job wait again, with its key.
update tickwheel.job j
set state = 0, due = $2::timestamptz, version = version + 1, attempt = 0, key = given_key, last_due = null, expires = null, ending = null,
    first_born = case when given_key is not null then $2::timestamptz end,
    ord = case when given_key is not null then 1 + coalesce((select max(o.ord) from tickwheel.job o where o.given_key = j.given_key), 0) end
where id = $1::text and state = 2 and due > now()
returning id
