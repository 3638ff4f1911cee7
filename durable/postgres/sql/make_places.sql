-- Makes rows to count in, for claim.sql to lock. A statement of its own: what another
-- transaction has made since a statement began that cannot see.
insert into tickwheel.place (rule, lane)
select p.rule, p.lane from unnest($1::int8[], $2::text[]) as p(rule, lane)
where not exists (select from tickwheel.place o where o.rule = p.rule and o.lane = p.lane)
order by p.rule, p.lane
on conflict do nothing
