-- Sends an echo (arrival.go): its text says whether jobs of a caller's transaction are announced.
select pg_notify($1::text, current_setting('max_prepared_transactions'))
