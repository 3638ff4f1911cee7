-- What of worker $1 is to be ended.
select j.id from tickwheel.stop s join tickwheel.job j on j.id = s.id
where j.state = 1 and j.holder = $1::int8 and j.claim = s.claim
