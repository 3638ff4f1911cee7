-- Makes rows to count in, for claim.sql to lock. A statement of its own: what another
-- transaction has made since a statement began that cannot see.
insert into tickwheel.counter (limit_id, lane)
select p.limit_id, p.lane from unnest($1::int8[], $2::text[]) as p(limit_id, lane)
where not exists (select from tickwheel.counter o where o.limit_id = p.limit_id and o.lane = p.lane)
order by p.limit_id, p.lane
on conflict do nothing
