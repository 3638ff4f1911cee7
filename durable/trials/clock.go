//go:build unix

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// setting is a time of the system's clock from which on the engine's clock is so far ahead of it.
type setting struct {
	at    time.Time
	ahead time.Duration
}

// clockSettings are all settings of the engine's clock, sorted.
//
// A worker reads the engine's clock twice a second. So for a while after that was set
// back it goes by what it has read before. That is why an attempt counts as early only if
// it begins before its job is due by every setting of the clock within the last [grace].
type clockSettings []setting

// grace is how long a worker may take to learn that the clock was set, on a busy machine.
const grace = 5 * time.Second

// most returns how far the clock was ahead at most within the grace before a time.
func (s clockSettings) most(at time.Time) (most time.Duration) {
	for _, one := range s {
		if one.at.After(at) {
			break
		}
		if most = max(most, one.ahead); !one.at.After(at.Add(-grace)) {
			most = one.ahead
		}
	}
	return most
}

// isEarly reports whether an attempt that begins at a time is early.
func (s clockSettings) isEarly(at, due time.Time) bool { return at.Add(s.most(at)).Before(due) }

// makeClocks makes clocks: the i-th server follows the i-th.
func (w *world) makeClocks(n int) {
	if n > 0 && !setclock.Supported {
		must(fmt.Errorf("the clock of a process cannot be set on this system: %w", errors.ErrUnsupported))
	}
	for i := range n {
		c := get(setclock.New(w.clockPath(i)))
		w.clocks, w.atEnd = append(w.clocks, c), append(w.atEnd, func() { c.Close() })
	}
}

func (w *world) clockPath(i int) string { return filepath.Join(w.dir, "clock"+strconv.Itoa(i)) }

// setClock sets the engine's clock to so much ahead, in whole seconds. The ledger knows
// first.
func (w *world) setClock(shift time.Duration) {
	shift = shift.Truncate(time.Second)
	w.move(shift, max(w.farthest, shift), func(c *setclock.Clock) error { return c.Set(shift) })
}

// pass has time pass for all processes at once, and for PostgreSQL a moment later: the
// other way round, a process would take what it reads there for the present, and then add
// what has passed.
func (w *world) pass(d time.Duration) {
	w.move(w.shift+d, w.shift+d, func(c *setclock.Clock) error { return c.Pass(d) })
}

func (w *world) move(shift, farthest time.Duration, f func(*setclock.Clock) error) {
	w.r.Happened++
	w.shift, w.farthest = shift, farthest
	w.noteClock(shift)
	for _, c := range w.clocks {
		must(f(c))
	}
	if w.pg != nil {
		w.setPostgresClock(shift)
	}
}

// noteClock writes down how far the engine's clock is ahead from now on.
func (w *world) noteClock(ahead time.Duration) {
	w.l.write(clockSet, strconv.FormatInt(int64(ahead), 10))
}

// turns sets the clock again and again. It is ahead for a while, in which buckets are
// closed, and then set back to before that, so that what is added now is due in buckets
// that were closed. At last it is where it was farthest: all that was added is due soon.
func turns(w *world) {
	w.until(2, 0, 0, func(n int) {
		stay := 8 * time.Second
		if n > 1 {
			stay += rand.N(8 * time.Second)
		}
		to := nextAhead(w, n)
		if n%2 == 1 {
			to = w.shift - stay - rand.N(5*time.Second)
		}
		w.setClock(to)
		time.Sleep(stay)
	})
	w.setClock(w.farthest)
}

// nextAhead returns where to set the clock: some seconds ahead, and later anywhere. Mostly
// that is when the far bucket that comes next is being moved, though what is due in it
// was added by nobody: then its near buckets are closed, and itself is not.
func nextAhead(w *world, n int) time.Duration {
	to := w.shift + 8*time.Second
	if n > 0 && rand.N(2) == 0 {
		offsets := []time.Duration{0, time.Minute, -time.Minute, time.Hour, -time.Hour, 25 * time.Hour}
		to = offsets[rand.N(len(offsets))] + rand.N(20*time.Second)
	}
	to = to.Truncate(time.Second)
	if rand.N(4) > 0 {
		there := setclock.Real().Add(to)
		moved := there.Truncate(farBucket).Add(farBucket - leadOfFar - time.Second)
		to += (moved.Sub(there.Truncate(time.Second)) + farBucket) % farBucket
	}
	return to
}

// clocked is what all faults that set clocks have in common. Some attempts fail, so that
// jobs that were canceled have begun before.
func clocked(w *world, clocks int) {
	w.r.twice = -1 // by a clock that is set forward a lease is over
	w.spec.Fail, w.spec.Cancel = 10, 50
	w.makeClocks(clocks)
}

// turnClock sets the clock of the server, or of the process that has all.
func turnClock(w *world) {
	if w.pg != nil {
		clocked(w, 0)
		w.setClock(0)
	} else {
		clocked(w, 1)
		w.r.rejected = 0.1 // because the clock was set while they were added
	}
	if w.embedded {
		w.spec.Clock = w.clockPath(0)
	}
	w.startAll()
	turns(w)
}

// turnLeaders has three nodes whose clocks are up to a minute apart, and the stream's
// leader change all the time. Then early is what begins before it is due by all of them.
func turnLeaders(w *world) {
	began := time.Now()
	clocked(w, w.spec.Nodes)
	for i, shift := range []time.Duration{0, 40 * time.Second, -20 * time.Second} {
		must(w.clocks[i].Set(shift))
		w.farthest = max(w.farthest, shift)
	}
	w.noteClock(w.farthest)
	w.startAll()
	nc := get(connectNATS(w.url()))
	defer nc.Close()
	w.end = w.end.Add(time.Since(began)) // it has taken as long as that until they work
	leaders := map[string]bool{}
	for late := w.end.Add(patience); time.Now().Before(w.end) || len(leaders) < 2 && time.Now().Before(late); w.r.Happened++ {
		pause(3*time.Second, 3*time.Second)
		leaders[leaderOf(nc)] = true
		if _, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, time.Second); !errors.Is(err, nats.ErrTimeout) {
			must(err)
		}
	}
	for _, c := range w.clocks { // all is due soon, whoever leads
		must(c.Set(w.farthest))
	}
}

// hold has jobs wait in workers for longer than anything in the code lasts, without a
// lease that is lost: few may run at once, each takes a while, and meanwhile an hour and
// more passes, or a day and more. The lease is longer than that.
func hold(w *world) {
	w.r.twice = -1 // the answers that were under way come too late
	w.makeClocks(1)
	w.spec.Lease, w.spec.Rate = 100*time.Hour, min(w.set.rate, 100)
	w.spec.Clock, w.spec.Running, w.spec.Slow = w.clockPath(0), 4, 300*time.Millisecond
	w.startAll()
	w.until(1, 3*time.Second, 3*time.Second, func(n int) {
		d := 61 * time.Minute
		if n%3 == 2 {
			d = 25 * time.Hour
		}
		w.pass(d)
	})
	time.Sleep(2 * time.Second) // they claim
}
