-- Makes a worker known, for a lease of $2 us.
insert into tickwheel.worker (name, until)
values ($1::text, now() + $2::int8 * interval '1 microsecond')
returning id
