package subject

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mayBeEarly are the subjects that round deadlines down.
var mayBeEarly = map[string]bool{"RussellLuo": true, "go-zero": true, "gost": true}

// losesTime are the subjects that run timers early, and cancel them too late, while the
// machine is busy with something else.
var losesTime = map[string]bool{"gost": true}

// eachTimer runs test, beside the others, on each subject that runs functions. A subject
// that loses time gets several attempts. The test gives its timers about the delay d. It
// reports false if it took too long to do with them what it has to do before they are
// due. Then it is run again with a longer delay.
func eachTimer(t *testing.T, test func(t *testing.T, s Subject, timers Timers, d time.Duration, errorf errorf) (inTime bool)) {
	for _, s := range All() {
		if s.Name == None || s.Kind != Functions {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			run := func(d time.Duration, errorf errorf) (inTime bool) {
				timers := s.New(Options{})
				defer timers.Stop()
				return test(t, s, timers, d, errorf)
			}
			attempt := func(errorf errorf) {
				for d := time.Second; !run(d, errorf); d *= 4 {
					t.Logf("this machine is too busy for delays of %v", d)
				}
			}
			for tries := 0; losesTime[s.Name] && tries < 9; tries++ {
				failed := false
				attempt(func(format string, args ...any) {
					failed = true
					t.Logf(format, args...)
				})
				if !failed {
					return
				}
			}
			attempt(t.Errorf)
		})
	}
}

// errorf is testing.T's, or notes that another attempt is needed.
type errorf func(format string, args ...any)

// eventually waits until the counter has its value, and some more for it to pass
// that.
func eventually(errorf errorf, counter *atomic.Int64, want int64) {
	for end := time.Now().Add(30 * time.Second); counter.Load() < want && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if got := counter.Load(); got != want {
		errorf("%d have run, want %d", got, want)
	}
}

func TestEachFiresOnce(t *testing.T) {
	eachTimer(t, func(t *testing.T, s Subject, timers Timers, _ time.Duration, errorf errorf) bool {
		var fired, early atomic.Int64
		for i := range 300 {
			d := time.Duration(i%100+1) * time.Millisecond
			due := time.Now().Add(d)
			timers.Add(d, func() {
				if time.Now().Before(due) {
					early.Add(1)
				}
				fired.Add(1)
			})
		}
		eventually(errorf, &fired, 300)
		if n := early.Load(); n > 0 && !mayBeEarly[s.Name] {
			errorf("%d ran early", n)
		}
		return true
	})
}

func TestCanceledDoNotFire(t *testing.T) {
	eachTimer(t, func(t *testing.T, _ Subject, timers Timers, due time.Duration, errorf errorf) bool {
		const n = 300
		begin := time.Now()
		var kept, canceled atomic.Int64
		timers.Keep(n)
		for i := range n {
			counter := &canceled
			if i%3 == 0 {
				counter = &kept
			}
			timers.Set(i, due, func() { counter.Add(1) })
		}
		for i := range n {
			if i%3 != 0 {
				timers.Cancel(i)
			}
		}
		timers.AddCancel(due, func() { canceled.Add(1) })
		worked := false
		timers.Around(due, func() { canceled.Add(1) }, func() { worked = true })
		if time.Since(begin) > due/2 {
			return false
		}
		eventually(errorf, &kept, n/3)
		if got := canceled.Load(); got > 0 {
			errorf("%d ran though they were canceled", got)
		}
		if !worked {
			errorf("Around did not work")
		}
		return true
	})
}

func TestResetMoves(t *testing.T) {
	eachTimer(t, func(t *testing.T, _ Subject, timers Timers, later time.Duration, errorf errorf) bool {
		if !timers.CanReset() {
			t.Skip("has no Reset")
		}
		const n = 100
		var fired, early atomic.Int64
		timers.Keep(n)
		begin := time.Now()
		due := begin.Add(later - 25*time.Millisecond) // as early as the coarsest may be
		for i := range n {
			timers.Set(i, later*6/10, func() {
				if time.Now().Before(due) {
					early.Add(1)
				}
				fired.Add(1)
			})
		}
		for range 2 {
			for i := range n {
				timers.Reset(i, later)
			}
		}
		if time.Since(begin) > later/2 {
			return false
		}
		eventually(errorf, &fired, n)
		if got := early.Load(); got > 0 {
			errorf("%d ran before the time to which they were reset", got)
		}
		return true
	})
}

// eachOf runs test on each subject of a kind, whose instances have the interface T.
func eachOf[T Timers](t *testing.T, kind Kind, test func(t *testing.T, instance T)) {
	some := false
	for _, s := range All() {
		if s.Kind != kind {
			continue
		}
		some = true
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			instance := s.New(Options{}).(T)
			t.Cleanup(instance.Stop)
			test(t, instance)
		})
	}
	if !some {
		t.Error("no subject")
	}
}

func TestContexts(t *testing.T) {
	eachOf(t, ContextMaker, func(t *testing.T, c Contexts) {
		ctx, cancel := c.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("the context ends with %v", ctx.Err())
		}
		worked := false
		c.Around(time.Hour, nil, func() { worked = true })
		if !worked {
			t.Error("Around did not work")
		}
	})
}

func TestChannels(t *testing.T) {
	eachOf(t, ChannelMaker, func(t *testing.T, c Channels) {
		received := false
		c.NewStop(time.Hour, nil)
		c.NewStop(time.Millisecond, func(timer <-chan time.Time) {
			<-timer
			received = true
		})
		if !received {
			t.Error("nothing was received")
		}
	})
}

func TestTickers(t *testing.T) {
	eachOf(t, TickerMaker, func(_ *testing.T, tickers Tickers) {
		c, stop := tickers.NewTicker(time.Millisecond)
		<-c
		<-c
		stop()
	})
}

func TestJobs(t *testing.T) {
	eachOf(t, JobMaker, func(_ *testing.T, jobs Jobs) {
		ran := make(chan bool)
		jobs.Every(time.Millisecond, func() { ran <- true })
		<-ran
		<-ran
	})
}

func TestKeys(t *testing.T) {
	eachOf(t, KeyMaker, func(t *testing.T, keys Keys) {
		var wrong, right atomic.Int64
		const due = 500 * time.Millisecond
		late := int64(0) // cancels that may come too late, on a busy machine
		for range 3 {
			keys.ScheduleKey(1, time.Hour, func() { wrong.Add(1) })
			keys.ScheduleKey(1, time.Millisecond, func() { right.Add(1) })
			begin := time.Now()
			keys.ScheduleKey(2, due, func() { wrong.Add(1) })
			keys.CancelKey(2)
			if time.Since(begin) > due/2 {
				late++
			}
			eventually(t.Errorf, &right, 1)
			right.Store(0)
		}
		time.Sleep(due + 50*time.Millisecond)
		if n := wrong.Load(); n > late {
			t.Errorf("%d ran that were replaced or canceled, %d of them late", n, late)
		}
	})
}

// A name with a space in it would make a line of results that cannot be read.
func TestNames(t *testing.T) {
	for _, s := range All() {
		if strings.ContainsAny(s.Name, " \t/") {
			t.Errorf("%q", s.Name)
		}
	}
}

func TestParking(t *testing.T) {
	eachOf(t, Parker, func(t *testing.T, p Parking) {
		for range 3 {
			late, a, b, other := p.Park(time.Millisecond, 1), p.Park(time.Hour, 2), p.Park(time.Hour, 2), p.Park(time.Hour, 3)
			p.Notify(4)
			if p.Ended(late) {
				t.Error("one was notified under another key")
			}
			p.Notify(2)
			if !p.Ended(a) || !p.Ended(b) {
				t.Error("one was not notified")
			}
			p.Notify(3)
			if !p.Ended(other) {
				t.Error("one was not notified under its key")
			}
		}
	})
}

// Most of gost's cancels would be lost if its adapter did not wait for them.
func TestGostLosesNoCancel(t *testing.T) {
	timers := gost.New(Options{})
	defer timers.Stop()
	const due = 500 * time.Millisecond
	var fired, late atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				begin := time.Now()
				timers.AddCancel(due, func() { fired.Add(1) })
				if time.Since(begin) > due/2 {
					late.Add(1)
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(due + 50*time.Millisecond)
	if n := fired.Load(); n > 80+late.Load() { // some are, on a busy machine
		t.Errorf("%d of 800 ran though they were canceled, %d of them late", n, late.Load())
	}
}

// The heap stays in order and loses nothing through purges.
func TestHeapPurge(t *testing.T) {
	h := newHeapTimers()
	defer h.stop()
	r := rand.New(rand.NewPCG(1, 2))
	var live []*heapTask
	for range 10_000 {
		task := h.add(time.Hour+time.Duration(r.Int64N(int64(time.Hour))), func() {})
		if live = append(live, task); r.IntN(10) < 9 {
			i := r.IntN(len(live))
			h.cancel(live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if size := h.heap.Size(); size > 2*len(live)+66 || size != len(h.tasks) {
		t.Errorf("%d in the heap and %d in the slice, of which %d are alive", size, len(h.tasks), len(live))
	}
	alive, last := 0, time.Duration(0)
	for v, ok := h.heap.Pop(); ok; v, ok = h.heap.Pop() {
		task := v.(*heapTask)
		if task.due < last {
			t.Fatalf("due at %v after %v", task.due, last)
		}
		last = task.due
		if task.f != nil {
			alive++
		}
	}
	if alive != len(live) {
		t.Errorf("%d are alive in the heap, want %d", alive, len(live))
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if seen[s.Name] {
			t.Errorf("two subjects are called %s", s.Name)
		}
		seen[s.Name] = true
		if s.Most > 0 && s.Why == "" {
			t.Errorf("%s bears %d at most, and does not say why", s.Name, s.Most)
		}
	}
	for _, s := range All() {
		if !seen[s.Baseline()] {
			t.Errorf("%s has the baseline %q, which is no subject", s.Name, s.Baseline())
		}
	}
}
