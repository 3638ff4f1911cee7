-- Sends an announcement (notifier.go) or a notice (notices.go) to all processes.
select pg_notify($1::text, $2::text)
