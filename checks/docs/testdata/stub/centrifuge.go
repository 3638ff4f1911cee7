package centrifuge

// TimerCanceler is what centrifuge takes from a scheduler of timers.
type TimerCanceler interface{ Cancel() }
