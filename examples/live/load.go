package main

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	step     = 10 * time.Millisecond // of the load: what is due in it is done at once
	shortest = 5 * time.Millisecond
	longest  = 8 * time.Minute
	swell    = time.Minute // the rate rises and falls by half in this time
	burst    = 10 * time.Second
)

// load schedules timeouts at a rate, and cancels a part of them. One goroutine runs it.
type load struct {
	wheel  *timingwheel.TimingWheel
	rate   int
	cancel float64

	steps  int64
	owed   float64                         // timers to be scheduled, with the fraction that is left over
	doomed map[int64][]timingwheel.Timeout // to be canceled, by step
}

func newLoad(w *timingwheel.TimingWheel, rate int, cancel float64) *load {
	return &load{wheel: w, rate: rate, cancel: cancel, doomed: map[int64][]timingwheel.Timeout{}}
}

// run keeps the load up until ctx ends.
func (l *load) run(ctx context.Context) {
	for range 2 * l.rate {
		l.schedule(delay(time.Hour, 30*time.Hour))
	}
	job, err := l.wheel.ScheduleAtFixedRate(time.Second, 250*time.Millisecond, func() {})
	if err == nil {
		defer job.Stop()
	}
	ticker := l.wheel.NewTicker(step)
	defer ticker.Stop()
	start := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// A ticker drops what a slow receiver misses: the steps are made up for.
		for l.steps < int64(time.Since(start)/step) {
			l.step(ctx)
		}
	}
}

func (l *load) step(ctx context.Context) {
	l.steps++
	for _, t := range l.doomed[l.steps] {
		t.Cancel()
	}
	delete(l.doomed, l.steps)

	at := time.Duration(l.steps) * step
	wave := 1 + 0.5*math.Sin(2*math.Pi*at.Seconds()/swell.Seconds())
	for l.owed += wave * float64(l.rate) * step.Seconds(); l.owed >= 1; l.owed-- {
		l.schedule(delay(shortest, longest))
	}
	if at%burst == 0 {
		for range l.rate / 2 {
			l.schedule(burst)
		}
	}
	if at%(100*time.Millisecond) == 0 {
		// A context that ends by its deadline.
		_, cancel := l.wheel.WithTimeout(ctx, delay(shortest, time.Second))
		l.wheel.AfterFunc(time.Second, cancel)
	}
}

// schedule adds a timeout; some are canceled at a random moment before they are due.
func (l *load) schedule(d time.Duration) {
	t, err := l.wheel.Schedule(d, func() {})
	if err != nil || rand.Float64() >= l.cancel {
		return
	}
	after := l.steps + 1 + int64(rand.Float64()*float64(d/step))
	l.doomed[after] = append(l.doomed[after], t)
}

// delay returns a time between the two; each magnitude is as likely as any other.
func delay(from, to time.Duration) time.Duration {
	return time.Duration(float64(from) * math.Pow(float64(to)/float64(from), rand.Float64()))
}

// pushBack has n sessions, each with a timer that is pushed back at every sign of life,
// or begins anew with it. A timer that comes due calls expire.
func pushBack(ctx context.Context, w *timingwheel.TimingWheel, n int, expire func()) {
	sessions := make([]*timingwheel.Timer, n)
	for i := range sessions {
		sessions[i] = w.AfterFunc(delay(time.Second, longest), expire)
	}
	ticker := w.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for range 1 + n/100 {
			sessions[rand.IntN(n)].Reset(delay(time.Second, longest))
		}
	}
}

// clean is what is to be done when a session has expired. It takes a moment, as the query
// to a database does.
func clean() { time.Sleep(delay(time.Millisecond, 100*time.Millisecond)) }
