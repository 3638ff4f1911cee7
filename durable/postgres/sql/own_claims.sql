-- The claims of worker $1, which are of its kinds $2. What runs is due no later than soon.
select j.id, j.claim from unnest($2::text[]) as k(kind) cross join lateral (
    select j.id, j.claim from tickwheel.job j
    where j.kind = k.kind and j.due < now() + interval '1 minute' and j.state = 1 and j.holder = $1::int8
) as j
