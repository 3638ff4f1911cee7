-- Makes a worker of the kinds $3 known, for a lease of $2 us. Names are unique, so who is there already was
-- made known by a call whose answer was lost.
insert into tickwheel.worker (name, until, kinds)
values ($1::text, now() + $2::int8 * interval '1 microsecond', coalesce($3::text[], '{}'))
on conflict (name) do update set until = excluded.until
returning id, until
