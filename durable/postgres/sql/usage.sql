-- What is counted for the limits that are there.
select rule, lane, taken, tokens, until from tickwheel.place
where rule = any((select ids from tickwheel.rules)::int8[])
