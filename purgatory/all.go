package purgatory

// all calls step until it returns false, also when it panics or ends the goroutine
// (runtime.Goexit): code of a user does no harm to what comes after it. Then the panic
// goes on. Of several panics the first does, and the others are dropped.
func all(step func() bool) {
	finished := false
	defer func() {
		if finished {
			return
		}
		for quietly(step) {
		}
	}()
	for step() {
	}
	finished = true
}

// quietly calls step while an earlier one panics or ends the goroutine. It drops a panic.
func quietly(step func() bool) (more bool) {
	finished := false
	defer func() {
		switch {
		case finished:
		case recover() != nil:
			more = true
		default: // it ends the goroutine, and this is the only place to go on
			for quietly(step) {
			}
		}
	}()
	more = step()
	finished = true
	return more
}
