-- Asks for an end to the claim of a job that runs, and returns that.
insert into tickwheel.cancel_request (id, claim, asked)
select id, claim, now() from tickwheel.job where id = $1::text and state = 1
on conflict (id) do update set claim = excluded.claim, asked = excluded.asked
returning id
