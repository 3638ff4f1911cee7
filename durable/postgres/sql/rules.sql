-- The limits and pauses.
select revision, rules from tickwheel.rules
