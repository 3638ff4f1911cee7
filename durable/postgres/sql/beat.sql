-- Renews a worker's lease, also of one that was taken for dead and forgotten.
insert into tickwheel.worker (id, name, until)
values ($1::int8, $2::text, now() + $3::int8 * interval '1 microsecond')
on conflict (id) do update set until = excluded.until
