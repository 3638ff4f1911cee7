package purgatory

// all calls step until it returns false, also when it panics or ends the goroutine
// (runtime.Goexit): code of a user does no harm to what comes after it. Then the panic
// goes on. Of several panics the first does, and the others are dropped.
//
// Step goes to the heap, with all that it captures. See visit.all for a walk that may not
// allocate.
func (t *trampoline) all(step func() bool) {
	finished := false
	defer func() {
		if !finished {
			t.rest(step)
		}
	}()
	for step() {
	}
	finished = true
}

// rest calls step until it returns false, on goroutines that it may end. It makes another
// one each time that step does, and waits for it.
//
// Its caller's goroutine is about to end, or panics. There, a step that ended it would
// leave nowhere to go on but in a deferred call inside that step: a million such steps
// would be a stack of a million calls. And if a deferred call of such a step panics, the
// goroutine ends all the same when that is recovered, without a way to go on.
func (t *trampoline) rest(step func() bool) {
	t.apart.Add(1)
	defer t.apart.Add(-1)
	for more := true; more; {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			for more {
				more = step()
			}
		}()
		<-ended
	}
}
