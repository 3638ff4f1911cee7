-- Tells the Feeds of all processes that something is due soon; 'all': maybe long due.
select pg_notify($1::text, $2::text)
