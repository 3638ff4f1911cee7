-- The transactions that are open, and for each of the keys $1 the job that has it and the transaction that has
-- locked that job; empty for none.
select pg_snapshot_xmin(s)::text::int8, pg_snapshot_xmax(s)::text::int8, array(
    select coalesce(j.id || ' ' || j.xmax::text, '')
    from unnest($1::text[]) with ordinality as k(key, ord) left join tickwheel.job j on j.key = k.key
    order by k.ord
)
from pg_current_snapshot() as s
