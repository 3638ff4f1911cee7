-- Which of these are there, ended or not, and the time. It runs after insert.sql, so that
-- it sees what an earlier try has stored, whose answer was lost.
select array(select id from tickwheel.job where id = any($1::text[])), clock_timestamp()
