package timingwheel

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrTooManyPending is returned when as many tasks are pending as [WithMaxPending]
// permits.
var ErrTooManyPending = errors.New("timingwheel: too many pending")

// WithMaxPending limits how many functions of AfterFunc, Schedule, ScheduleAt, Submit
// and Keyed may be pending. While so many are, Schedule, ScheduleAt, Submit and
// Keyed.Schedule (but for a key that is pending, whose function is replaced) return
// [ErrTooManyPending], and AfterFunc returns a Timer that never runs: its Stop and
// Reset return false. Each refusal is counted in [Stats].
//
// A place is free again as soon as the function is handed to the executor, cancelled or
// handed back. The count is exact at any time: it changes under the lock under which an
// entry comes and goes.
//
// Not refused is what sets something anew: Reset of a Timer that has fired or was
// stopped, and of a key whose function waits in the executor's queue. It takes a place
// all the same, so there may be more pending than n by as many. Timers with a channel,
// tickers, Sleep, contexts and jobs are neither refused nor counted.
//
// The default, 0, is no limit; New panics on a negative number. A limit costs each
// change of what is pending an atomic operation that all processors share.
func WithMaxPending(n int) Option {
	return func(c *config) {
		if n < 0 {
			panic(fmt.Sprintf("timingwheel: WithMaxPending(%d): negative", n))
		}
		c.maxPending = n
	}
}

// limit counts the pending one-shots of all shards. Nil is no limit.
type limit struct {
	max     int64
	pending atomic.Int64
}

func newLimit(n int) *limit {
	if n == 0 {
		return nil
	}
	return &limit{max: int64(n)}
}

// take takes a place if there is one. Not by an increment that is undone when it was too
// much: that could refuse another, though a place has become free.
func (l *limit) take() bool {
	if l == nil {
		return true
	}
	for {
		n := l.pending.Load()
		if n >= l.max {
			return false
		}
		if l.pending.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// force takes a place, whether or not there is one.
func (l *limit) force() {
	if l != nil {
		l.pending.Add(1)
	}
}

func (l *limit) release() {
	if l != nil {
		l.pending.Add(-1)
	}
}
