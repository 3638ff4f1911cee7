-- The job that has a key.
select id from tickwheel.job where key = $1::text
