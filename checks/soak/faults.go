package main

import (
	"errors"
	"sync/atomic"
)

// errOnPurpose is what tasks panic with.
var errOnPurpose = errors.New("on purpose")

// faults counts the refusals and the panics on a wheel, to compare them with its Stats.
type faults struct {
	refused   atomic.Int64 // calls that returned ErrTooManyPending
	panicked  atomic.Int64 // tasks and runs of jobs
	handled   atomic.Int64 // calls of the panic handler
	inFutures atomic.Int64 // functions of futures, whose panics the handler does not get
}

func (l *life) handlePanic(recovered any, stack []byte) {
	if recovered != errOnPurpose || len(stack) == 0 {
		l.violate("the panic handler got %v", recovered)
	}
	l.faults.handled.Add(1)
}

func (f *faults) checkPanics(l *life) {
	panicked, handled, inFutures := f.panicked.Load(), f.handled.Load(), f.inFutures.Load()
	if all := l.w.Stats().Panicked; panicked != handled || all != panicked+inFutures {
		l.violate("%d panics, %d handled, and %d in futures; Stats says %d", panicked, handled, inFutures, all)
	}
}

// checkRefused compares rejected, which is of Stats, with the refusals that the calls
// reported. An AfterFunc or a Reset does not report one; maybe is how many of these there
// can have been.
func (f *faults) checkRefused(l *life, rejected, maybe int64) {
	if known := f.refused.Load(); rejected < known || rejected > known+maybe {
		l.violate("refused %d, and perhaps %d, but Stats says %d", known, maybe, rejected)
	}
}
