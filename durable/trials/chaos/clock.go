//go:build unix

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// clockLog is a file with all settings of the engine's clock, so that a handler can tell
// what that shows: lines of when, by the system's clock, and of how far it is ahead of
// that from then on.
//
// A worker reads the engine's clock twice a second. So for a while after that was set
// back it goes by what it has read before. That is why an attempt counts as early only if
// it begins before its job is due by every setting of the clock within the last [grace].
type clockLog string

// grace is how long a worker may take to learn that the clock was set, on a busy machine.
const grace = 5 * time.Second

func logIn(dir string) clockLog { return clockLog(filepath.Join(dir, "clocklog")) }

func (c clockLog) write(shift time.Duration) error { return c.writeAt(setclock.Real(), shift) }

func (c clockLog) writeAt(at time.Time, shift time.Duration) error {
	f, err := os.OpenFile(string(c), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%d %d\n", at.UnixNano(), shift)
	return err
}

// shifts returns how far the clock is ahead now, and the most of the last grace.
func (c clockLog) shifts() (now, most time.Duration) {
	text, err := os.ReadFile(string(c))
	if err != nil {
		return 0, 0 // it was never set
	}
	since := setclock.Real().Add(-grace).UnixNano()
	for line := range strings.Lines(string(text)) {
		var at int64
		if _, err := fmt.Sscan(line, &at, &now); err != nil {
			continue // it is being written
		}
		if most = max(most, now); at <= since {
			most = now
		}
	}
	return now, most
}

// isEarly reports whether an attempt that begins now is early.
func (c clockLog) isEarly(due time.Time) bool {
	_, most := c.shifts()
	return setclock.Real().Add(most).Before(due)
}

// makeClocks makes clocks: the i-th server follows the i-th.
func (w *world) makeClocks(n int) error {
	if !setclock.Supported {
		return fmt.Errorf("the clock of a process cannot be set on this system: %w", errors.ErrUnsupported)
	}
	for i := range n {
		c, err := setclock.New(w.clockPath(i))
		if err != nil {
			return err
		}
		w.clocks = append(w.clocks, c)
	}
	return nil
}

func (w *world) clockPath(i int) string { return filepath.Join(w.dir, "clock"+strconv.Itoa(i)) }

// setClock sets the engine's clock to so much ahead, in whole seconds. The log knows
// first.
func (w *world) setClock(shift time.Duration) error {
	shift = shift.Truncate(time.Second)
	w.r.Provoked++
	w.shift, w.farthest = shift, max(w.farthest, shift)
	err := logIn(w.dir).write(shift)
	for _, c := range w.clocks {
		err = errors.Join(err, c.Set(shift))
	}
	if w.pg != nil {
		err = errors.Join(err, w.setPostgresClock(shift))
	}
	return err
}

// pass has time pass for all processes at once, and for PostgreSQL a moment later: the
// other way round, a process would take what it reads there for the present, and then add
// what has passed.
func (w *world) pass(d time.Duration) error {
	w.r.Provoked++
	w.shift += d
	w.farthest = w.shift
	err := logIn(w.dir).write(w.shift)
	for _, c := range w.clocks {
		err = errors.Join(err, c.Pass(d))
	}
	if w.pg != nil {
		err = errors.Join(err, w.setPostgresClock(w.shift))
	}
	return err
}

// turns sets the clock again and again. It is ahead for a while, in which buckets are
// closed, and then set back to before that, so that what is added now is due in buckets
// that were closed. At last it is where it was farthest: all that was added is due soon.
func (w *world) turns(end time.Time) error {
	for n := 0; n < 2 || time.Now().Before(end); n++ {
		stay := 8 * time.Second
		if n > 1 {
			stay += rand.N(8 * time.Second)
		}
		to := w.ahead(n)
		if n%2 == 1 {
			to = w.shift - stay - rand.N(5*time.Second)
		}
		if err := w.setClock(to); err != nil {
			return err
		}
		time.Sleep(stay)
	}
	return w.setClock(w.farthest)
}

// ahead returns where to set the clock: some seconds ahead, and later anywhere. Mostly
// that is when the far bucket that comes next is being moved, though what is due in it
// was added by nobody: then its near buckets are closed, and itself is not.
func (w *world) ahead(n int) time.Duration {
	to := w.shift + 8*time.Second
	if n > 0 && rand.N(2) == 0 {
		places := []time.Duration{0, time.Minute, -time.Minute, time.Hour, -time.Hour, 25 * time.Hour}
		to = places[rand.N(len(places))] + rand.N(20*time.Second)
	}
	to = to.Truncate(time.Second)
	if rand.N(4) > 0 {
		there := setclock.Real().Add(to)
		moved := there.Truncate(farBucket).Add(farBucket - leadOfFar - time.Second)
		to += (moved.Sub(there.Truncate(time.Second)) + farBucket) % farBucket
	}
	return to
}

// fewFail has some attempts fail, so that jobs that were canceled have begun before.
var fewFail = []string{envFail + "=10", envCancel + "=50"}

// fewRejected is the share of jobs that may be refused because the clock was set while
// they were added.
const fewRejected = 0.1

// turnClock sets the server's clock while workers and a producer use it.
func (w *world) turnClock(end time.Time) error {
	w.r.CheckTwice = false // by a clock that is set forward a lease is over
	w.r.RejectedLimit = fewRejected
	w.env = fewFail
	if err := w.makeClocks(1); err != nil {
		return err
	}
	if err := w.startAll(); err != nil {
		return err
	}
	return w.turns(end)
}

// turnEmbedded sets the clock of the process that has server, worker and producer.
func (w *world) turnEmbedded(end time.Time) error {
	w.r.CheckTwice, w.r.RejectedLimit = false, fewRejected
	if err := w.makeClocks(1); err != nil {
		return err
	}
	w.env = append([]string{envClock + "=" + w.clockPath(0)}, fewFail...)
	if err := w.start("embedded", "embedded", w.env...); err != nil {
		return err
	}
	w.awaitWork(0)
	return w.turns(end)
}

// turnLeaders has three nodes whose clocks are up to a minute apart, and the stream's
// leader change all the time. Then early is what begins before it is due by all of them.
func (w *world) turnLeaders(end time.Time) error {
	w.r.CheckTwice = false
	start := time.Now()
	if err := w.makeClocks(w.nodes); err != nil {
		return err
	}
	for i, shift := range []time.Duration{0, 40 * time.Second, -20 * time.Second} {
		if err := w.clocks[i].Set(shift); err != nil {
			return err
		}
		w.farthest = max(w.farthest, shift)
	}
	if err := logIn(w.dir).write(w.farthest); err != nil {
		return err
	}
	for i := range w.nodes {
		if err := w.startServer(i); err != nil {
			return err
		}
	}
	nc, err := w.connectCluster()
	if err != nil {
		return err
	}
	defer nc.Close()
	w.env = fewFail
	if err := w.startClients(); err != nil {
		return err
	}
	w.awaitWork(0)
	end = end.Add(time.Since(start)) // it has taken as long as that until they work
	leaders := map[string]bool{}
	for late := end.Add(patience); time.Now().Before(end) || len(leaders) < 2 && time.Now().Before(late); {
		time.Sleep(3*time.Second + rand.N(3*time.Second))
		leader, err := awaitLeader(nc)
		if err != nil {
			return err
		}
		leaders[leader] = true
		if _, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, time.Second); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return err
		}
		w.r.Provoked++
	}
	for _, c := range w.clocks { // all is due soon, whoever leads
		if err := c.Set(w.farthest); err != nil {
			return err
		}
	}
	return nil
}

// hold has jobs wait in workers for longer than anything in the code lasts, without a
// lease that is lost: few may run at once, each takes a while, and meanwhile an hour and
// more passes, or a day and more. The lease is longer than that.
func (w *world) hold(end time.Time) error {
	w.r.CheckTwice = false // the answers that were under way come too late
	w.lease = 100 * time.Hour
	w.set.rate = min(w.set.rate, 100)
	if err := w.makeClocks(1); err != nil {
		return err
	}
	w.env = []string{envClock + "=" + w.clockPath(0), envPlaces + "=4", envSlow + "=300ms"}
	if err := w.startAll(); err != nil {
		return err
	}
	for n := 0; n == 0 || time.Now().Before(end); n++ {
		time.Sleep(3*time.Second + rand.N(3*time.Second))
		d := 61 * time.Minute
		if n%3 == 2 {
			d = 25 * time.Hour
		}
		if err := w.pass(d); err != nil {
			return err
		}
	}
	time.Sleep(2 * time.Second) // they claim
	return nil
}
