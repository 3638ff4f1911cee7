-- Makes a worker of the kinds $3 known under the id $4, for a lease of $2 us. Names are unique, so who is there
-- already was made known by a call whose answer was lost. The id is random: a sequence would give ids a
-- second time after the server has gone back, and who is dead would seem to live.
insert into tickwheel.worker (id, name, until, kinds)
values ($4::int8, $1::text, now() + $2::int8 * interval '1 microsecond', coalesce($3::text[], '{}'))
on conflict (name) do update set until = excluded.until
returning id, until
