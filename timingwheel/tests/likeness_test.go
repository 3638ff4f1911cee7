package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests in this file do everything twice, on the wheel and with the standard library.
// Both run in one bubble with one clock, at whole ticks only. After every step the tests
// compare all that can be seen. The specification is what the standard library does.

// likeness is a bubble's worth of random steps.
type likeness struct {
	t *testing.T
	r *rand.Rand
	w *timingwheel.TimingWheel
}

const likenessTick = time.Millisecond

var fresh = flag.Int("fresh", 0, "how many random programs with new seeds run beside packages time and context, after those that always do")

func alike(t *testing.T, steps int, run func(l *likeness) (step, compare func())) {
	always := uint64(unlessShort(40, 15))
	for n := range always + uint64(*fresh) {
		seed := n
		if n >= always {
			seed = rand.Uint64()
		}
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Log("seed", seed)
				}
			}()
			r := rand.New(rand.NewPCG(seed, 0))
			w := timingwheel.New(timingwheel.WithTick(likenessTick), timingwheel.WithWheelSize(2<<r.IntN(9)), timingwheel.WithShards(1+r.IntN(3)))
			defer w.Stop()
			step, compare := run(&likeness{t, r, w})
			for range steps {
				if r.IntN(3) == 0 {
					time.Sleep(time.Duration(r.IntN(30)) * likenessTick)
					synctest.Wait() // the driver
				}
				step()
				synctest.Wait() // the driver, and what package context does in goroutines
				verify(t, w)
				compare()
			}
		})
	}
}

// delay is negative or zero now and then, and seldom far off.
func (l *likeness) delay() time.Duration {
	switch l.r.IntN(12) {
	case 0:
		return -time.Duration(l.r.IntN(3)) * likenessTick
	case 1:
		return time.Hour
	}
	return time.Duration(1+l.r.IntN(40)) * likenessTick
}

// sameReceived compares what can be received now without waiting.
func (l *likeness) sameReceived(theirs, ours <-chan time.Time) {
	var a, b time.Time
	select {
	case a = <-theirs:
	default:
	}
	select {
	case b = <-ours:
	default:
	}
	require.Equal(l.t, a, b)
}

func TestChannelTimersAreLikeTimes(t *testing.T) {
	type pair struct {
		theirs *time.Timer
		ours   *timingwheel.Timer
	}
	alike(t, 200, func(l *likeness) (step, compare func()) {
		var pairs []pair
		step = func() {
			if len(pairs) < 3 || l.r.IntN(8) == 0 {
				d := l.delay()
				pairs = append(pairs, pair{time.NewTimer(d), l.w.NewTimer(d)})
				return
			}
			p := pairs[l.r.IntN(len(pairs))]
			switch l.r.IntN(3) {
			case 0:
				require.Equal(l.t, p.theirs.Stop(), p.ours.Stop())
				l.sameReceived(p.theirs.C, p.ours.C)
			case 1:
				d := l.delay()
				require.Equal(l.t, p.theirs.Reset(d), p.ours.Reset(d))
			default:
				l.sameReceived(p.theirs.C, p.ours.C)
			}
		}
		return step, func() {
			if l.r.IntN(5) == 0 {
				for _, p := range pairs {
					l.sameReceived(p.theirs.C, p.ours.C)
				}
			}
		}
	})
}

func TestTickersAreLikeTimes(t *testing.T) {
	type pair struct {
		theirs *time.Ticker
		ours   *timingwheel.Ticker
	}
	alike(t, 200, func(l *likeness) (step, compare func()) {
		var pairs []pair
		period := func() time.Duration { return max(likenessTick, l.delay()) }
		step = func() {
			if len(pairs) < 3 {
				d := period()
				pairs = append(pairs, pair{time.NewTicker(d), l.w.NewTicker(d)})
				return
			}
			p := pairs[l.r.IntN(len(pairs))]
			switch l.r.IntN(6) {
			case 0:
				p.theirs.Stop()
				p.ours.Stop()
				l.sameReceived(p.theirs.C, p.ours.C)
			case 1:
				d := period()
				p.theirs.Reset(d)
				p.ours.Reset(d)
				l.sameReceived(p.theirs.C, p.ours.C)
			default:
				l.sameReceived(p.theirs.C, p.ours.C)
			}
		}
		return step, func() {}
	})
}

// contexts is a pair of trees of contexts. The same steps are applied to both. The deadlines in our
// tree are the wheel's.
type contexts struct {
	deadlines map[time.Time]bool // that were given out
	*likeness
	nodes []contextPair
}

type contextPair struct {
	theirs, ours context.Context
	cancel       func() // cancels both; nil if they cannot be canceled
	parent       int    // its place among the nodes
	kind         kind
	fired        [2]*atomic.Bool // by an AfterFunc on it; nil without one
}

func TestContextsAreLikeContexts(t *testing.T) {
	alike(t, 120, func(l *likeness) (step, compare func()) {
		c := &contexts{likeness: l}
		root := context.WithValue(context.Background(), depth(0), "root")
		c.nodes = []contextPair{{theirs: root, ours: root}}
		l.t.Cleanup(c.cancelAll) // or goroutines of package context would remain
		return c.step, c.compare
	})
}

type depth int

// kind says which package made a node of our tree, because that decides what ends at once.
type kind int

const (
	other     kind = iota // made by package context, and cannot be canceled: a value
	deaf                  // WithoutCancel
	wheels                // made by the wheel
	byPackage             // made by package context, and can be canceled
)

// followsAtOnce reports whether node i ends before the cancel of node x returns. In package context
// every node below x does. In our tree, a context that package context derived from one of the
// wheel's does not, unless it is the canceled one and no value lies between.
func (c *contexts) followsAtOnce(i, x int) bool {
	for i != x && i != 0 {
		n := c.nodes[i]
		switch n.kind {
		case deaf:
			return false
		case byPackage:
			above := n.parent
			for c.nodes[above].kind == other && above != 0 {
				above = c.nodes[above].parent
			}
			if c.nodes[above].kind == wheels && n.parent != x {
				return false
			}
		}
		i = n.parent
	}
	return i == x
}

// isOurs reports whether the wheel has made the context: package context may have, below an
// earlier deadline.
func isOurs(ctx context.Context) bool {
	return fmt.Sprintf("%T", ctx) == "*timingwheel.deadlineCtx"
}

func (c *contexts) step() {
	at := c.r.IntN(len(c.nodes))
	switch p := c.nodes[at]; c.r.IntN(5) {
	case 0:
		if p.cancel != nil {
			p.cancel()
			if p.fired[0] != nil {
				return // an AfterFunc
			}
			for i, n := range c.nodes { // the others have time to settle
				if n.fired[0] == nil && c.followsAtOnce(i, at) {
					c.sameDone(n)
					require.Equal(c.t, n.theirs.Err(), n.ours.Err())
				}
			}
		}
	case 1:
		if len(c.nodes) > 30 { // start anew
			c.cancelAll()
			require.Zero(c.t, c.w.Len())
			c.nodes = c.nodes[:1]
		}
	default:
		child := c.derive(p)
		child.parent = at
		c.nodes = append(c.nodes, child)
	}
}

func (c *contexts) cancelAll() {
	for _, p := range c.nodes[1:] {
		if p.cancel != nil {
			p.cancel()
			synctest.Wait()
		}
	}
}

func both(theirs, ours func()) func() { return func() { theirs(); ours() } }

// derive makes a child of both contexts of a pair.
func (c *contexts) derive(p contextPair) (child contextPair) {
	d, cause := c.delay(), fmt.Errorf("cause %d", c.r.Int())
	// No two deadlines are at one time: which of two causes is the first to reach a context
	// below both is left to chance, in package context too.
	for d > 0 && c.deadlines[time.Now().Add(d)] {
		d += likenessTick
	}
	at := time.Now().Add(d)
	if c.deadlines == nil {
		c.deadlines = map[time.Time]bool{}
	}
	c.deadlines[at] = true
	var theirs, ours context.CancelFunc
	switch c.r.IntN(9) {
	case 0:
		child.theirs, theirs = context.WithTimeout(p.theirs, d)
		child.ours, ours = c.w.WithTimeout(p.ours, d)
	case 1:
		child.theirs, theirs = context.WithTimeoutCause(p.theirs, d, cause)
		child.ours, ours = c.w.WithTimeoutCause(p.ours, d, cause)
	case 2:
		child.theirs, theirs = context.WithDeadline(p.theirs, at)
		child.ours, ours = c.w.WithDeadline(p.ours, at)
	case 3:
		child.theirs, theirs = context.WithDeadlineCause(p.theirs, at, cause)
		child.ours, ours = c.w.WithDeadlineCause(p.ours, at, cause)
	case 4:
		child.theirs, theirs = context.WithCancel(p.theirs)
		child.ours, ours = context.WithCancel(p.ours)
	case 5:
		var withCause, withCause2 context.CancelCauseFunc
		child.theirs, withCause = context.WithCancelCause(p.theirs)
		child.ours, withCause2 = context.WithCancelCause(p.ours)
		child.cancel = both(func() { withCause(cause) }, func() { withCause2(cause) })
		child.kind = byPackage
		return child
	case 6:
		child.theirs = context.WithValue(p.theirs, depth(len(c.nodes)), d)
		child.ours = context.WithValue(p.ours, depth(len(c.nodes)), d)
		return child
	case 7:
		child.theirs, child.ours = context.WithoutCancel(p.theirs), context.WithoutCancel(p.ours)
		child.kind = deaf
		return child
	default:
		child.theirs, child.ours = p.theirs, p.ours
		child.fired = [2]*atomic.Bool{new(atomic.Bool), new(atomic.Bool)}
		stop := context.AfterFunc(p.theirs, func() { child.fired[0].Store(true) })
		stop2 := context.AfterFunc(p.ours, func() { child.fired[1].Store(true) })
		child.cancel = func() { require.Equal(c.t, stop(), stop2()) }
		return child
	}
	child.cancel = both(theirs, ours)
	if child.kind = byPackage; isOurs(child.ours) {
		child.kind = wheels
	}
	if c.r.IntN(2) == 0 {
		child.theirs.Done()
		child.ours.Done()
	}
	return child
}

func (c *contexts) compare() {
	for _, p := range c.nodes {
		require.Equal(c.t, p.theirs.Err(), p.ours.Err())
		if c.r.IntN(4) == 0 { // not always, since to ask changes what is made
			c.sameDone(p)
			require.Equal(c.t, context.Cause(p.theirs), context.Cause(p.ours))
			theirs, ok := p.theirs.Deadline()
			ours, ok2 := p.ours.Deadline()
			require.Equal(c.t, theirs, ours)
			require.Equal(c.t, ok, ok2)
			if name := fmt.Sprint(p.ours); !strings.Contains(name, "stopCtx") {
				// Package context does not name a parent that is not its own.
				require.Equal(c.t, fmt.Sprint(p.theirs), name)
			}
			for k := range depth(len(c.nodes)) {
				require.Equal(c.t, p.theirs.Value(k), p.ours.Value(k))
			}
		}
		if p.fired[0] != nil {
			require.Equal(c.t, p.fired[0].Load(), p.fired[1].Load())
		}
	}
}

func (c *contexts) sameDone(p contextPair) {
	c.t.Helper()
	require.Equal(c.t, p.theirs.Done() == nil, p.ours.Done() == nil)
	require.Equal(c.t, isDone(p.theirs), isDone(p.ours))
	require.Equal(c.t, isDone(p.ours), p.ours.Err() != nil)
	require.Equal(c.t, errors.Is(p.theirs.Err(), context.DeadlineExceeded), errors.Is(p.ours.Err(), context.DeadlineExceeded))
}

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}
