-- What of worker $1 is to be ended.
select j.id from tickwheel.cancel_request r join tickwheel.job j on j.id = r.id
where j.state = 1 and j.holder = $1::int8 and j.claim = r.claim
