-- The same within a caller's transaction; but where transactions can be prepared for a
-- commit in two phases this is not announced: PREPARE TRANSACTION refuses one that was.
select pg_notify($1::text, $2::text) where current_setting('max_prepared_transactions')::int4 = 0
