package timingwheel_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func Example() {
	w := timingwheel.New()
	defer w.Stop()

	timeout, err := w.Schedule(time.Hour, func() { fmt.Println("request timed out") })
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println("answered in time:", timeout.Cancel())

	var wg sync.WaitGroup
	wg.Add(1)
	w.AfterFunc(10*time.Millisecond, func() {
		fmt.Println("the kettle boils")
		wg.Done()
	})
	wg.Wait()
	// Output:
	// answered in time: true
	// the kettle boils
}

func ExampleNew() {
	// Coarse ticks and small wheels, for sessions that last hours.
	w := timingwheel.New(
		timingwheel.WithTick(time.Second),
		timingwheel.WithWheelSize(64),
	)
	w.AfterFunc(8*time.Hour, func() { fmt.Println("session expired") })
	fmt.Println(w.Len(), "pending")
	w.Stop()
	// Output: 1 pending
}

func ExampleTimingWheel_Schedule() {
	w := timingwheel.New()
	defer w.Stop()
	done := make(chan struct{})
	_, err := w.Schedule(5*time.Millisecond, func() { close(done) })
	if err != nil {
		fmt.Println(err)
		return
	}
	<-done
	fmt.Println("ran")
	// Output: ran
}

func ExampleTimingWheel_ScheduleBatch() {
	w := timingwheel.New()
	defer w.Stop()
	var batch []timingwheel.Delayed
	for _, lease := range []string{"a", "b", "c"} {
		batch = append(batch, timingwheel.Delayed{
			After: time.Minute,
			Func:  func() { fmt.Println("lease", lease, "expired") },
		})
	}
	timeouts, err := w.ScheduleBatch(nil, batch)
	fmt.Println(len(timeouts), "scheduled:", err)
	fmt.Println("b released in time:", timeouts[1].Cancel())
	// Output:
	// 3 scheduled: <nil>
	// b released in time: true
}

func ExampleTimingWheel_ScheduleAt() {
	w := timingwheel.New()
	defer w.Stop()
	done := make(chan struct{})
	if _, err := w.ScheduleAt(time.Now().Add(5*time.Millisecond), func() { close(done) }); err != nil {
		fmt.Println(err)
		return
	}
	<-done
	fmt.Println("ran")
	// Output: ran
}

func ExampleTimeout_Cancel() {
	w := timingwheel.New()
	defer w.Stop()
	timeout, _ := w.Schedule(time.Minute, func() { fmt.Println("too late") })
	fmt.Println(timeout.Cancel(), timeout.Cancel())
	// Output: true false
}

func ExampleTimeout_Reset() {
	w := timingwheel.New()
	defer w.Stop()
	closed := make(chan struct{})
	idle, _ := w.Schedule(20*time.Millisecond, func() {
		fmt.Println("closing an idle connection")
		close(closed)
	})
	for range 3 {
		idle.Reset(20 * time.Millisecond) // traffic: push it back
	}
	<-closed
	fmt.Println("pushed back:", idle.Reset(time.Second))
	// Output:
	// closing an idle connection
	// pushed back: false
}

func ExampleTimer_Deadline() {
	w := timingwheel.New(timingwheel.WithTick(time.Second))
	defer w.Stop()
	lease := w.AfterFunc(time.Minute, func() { fmt.Println("lease expired") })
	at, ok := lease.Deadline()
	fmt.Println(time.Until(at) > 59*time.Second, ok)
	lease.Stop()
	_, ok = lease.Deadline()
	fmt.Println(ok)
	// Output:
	// true true
	// false
}

func ExampleTimingWheel_AfterFunc() {
	w := timingwheel.New()
	defer w.Stop()
	closed := make(chan struct{})
	idle := w.AfterFunc(20*time.Millisecond, func() {
		fmt.Println("closing an idle connection")
		close(closed)
	})
	for range 3 {
		idle.Reset(20 * time.Millisecond) // traffic: push it back
	}
	<-closed
	// Output: closing an idle connection
}

func ExampleTimer_Stop() {
	w := timingwheel.New()
	defer w.Stop()
	timer := w.AfterFunc(time.Minute, func() { fmt.Println("lease expired") })
	fmt.Println("released before it expired:", timer.Stop())
	// Output: released before it expired: true
}

// A timer can be set anew from inside its own function: here, a retry with
// exponential back-off.
func ExampleTimer_Reset() {
	w := timingwheel.New()
	defer w.Stop()
	done := make(chan struct{})
	attempt, backOff := 0, time.Millisecond
	var retry *timingwheel.Timer
	ready := make(chan struct{})
	retry = w.AfterFunc(0, func() {
		<-ready
		if attempt++; attempt < 4 {
			fmt.Println("attempt", attempt, "failed, again in", backOff)
			wait := backOff
			backOff *= 2
			retry.Reset(wait) // last: the next attempt may begin at once, on another goroutine
			return
		}
		fmt.Println("attempt", attempt, "succeeded")
		close(done)
	})
	close(ready)
	<-done
	// Output:
	// attempt 1 failed, again in 1ms
	// attempt 2 failed, again in 2ms
	// attempt 3 failed, again in 4ms
	// attempt 4 succeeded
}

func ExampleTimingWheel_SleepContext() {
	w := timingwheel.New()
	defer w.Stop()
	ctx, cancel := context.WithCancelCause(context.Background())
	fmt.Println(w.SleepContext(ctx, time.Millisecond))
	cancel(errors.New("the server is going down"))
	fmt.Println(w.SleepContext(ctx, time.Hour))
	// Output:
	// <nil>
	// the server is going down
}

func ExampleTimingWheel_NewTimer() {
	w := timingwheel.New()
	defer w.Stop()
	answers := make(chan string, 1)
	answers <- "42"
	timer := w.NewTimer(time.Minute)
	select {
	case answer := <-answers:
		fmt.Println("answer:", answer)
		timer.Stop() // or the wheel holds it for the rest of the minute
	case <-timer.C:
		fmt.Println("no answer")
	}
	fmt.Println(w.Len(), "pending")
	// Output:
	// answer: 42
	// 0 pending
}

func ExampleTimingWheel_NewTicker() {
	w := timingwheel.New()
	defer w.Stop()
	last := time.Now()
	ticker := w.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for range 3 {
		now := <-ticker.C
		fmt.Println("tick", now.After(last))
		last = now
	}
	// Output:
	// tick true
	// tick true
	// tick true
}

func ExampleTimingWheel_WithTimeoutCause() {
	w := timingwheel.New()
	defer w.Stop()
	ctx, cancel := w.WithTimeoutCause(context.Background(), 5*time.Millisecond, errors.New("the database is slow"))
	defer cancel()
	query, cancelQuery := context.WithCancel(ctx) // package context knows it as its own
	defer cancelQuery()
	<-query.Done()
	fmt.Println(query.Err())
	fmt.Println(context.Cause(query))
	// Output:
	// context deadline exceeded
	// the database is slow
}

func ExampleTimingWheel_ScheduleAtFixedRate() {
	w := timingwheel.New()
	defer w.Stop()
	runs := make(chan int)
	n := 0 // needs no lock: a run sees what the one before it did
	job, err := w.ScheduleAtFixedRate(0, 2*time.Millisecond, func() { n++; runs <- n })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-runs, <-runs, <-runs)
	job.Stop()
	fmt.Println(job.Err())
	// Output:
	// 1 2 3
	// timingwheel: canceled
}

// nextFullHour is a schedule; those of cron libraries are as good.
type nextFullHour struct{}

func (nextFullHour) Next(prev time.Time) time.Time {
	return prev.Truncate(time.Hour).Add(time.Hour)
}

func ExampleJitter() {
	w := timingwheel.New()
	defer w.Stop()
	for _, host := range []string{"web-1", "web-2"} {
		job, err := w.ScheduleFunc(nextFullHour{}, func() {}, timingwheel.Jitter(time.Hour, host+" report"))
		if err != nil {
			fmt.Println(err)
			return
		}
		next, _ := job.Next()
		fmt.Println(host, "reports at minute", next.Minute())
	}
	// Output:
	// web-1 reports at minute 13
	// web-2 reports at minute 26
}

func ExampleTimingWheel_ScheduleFunc() {
	w := timingwheel.New()
	defer w.Stop()
	job, err := w.ScheduleFunc(nextFullHour{}, func() { fmt.Println("ding dong") })
	if err != nil {
		fmt.Println(err)
		return
	}
	next, _ := job.Next()
	fmt.Println("rings at minute", next.Minute())
	// Output: rings at minute 0
}

func ExampleSubmit() {
	w := timingwheel.New()
	defer w.Stop()
	future, err := timingwheel.Submit(w, 5*time.Millisecond, func(ctx context.Context) (string, error) {
		return "the answer", ctx.Err()
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(future.Wait(context.Background()))
	// Output: the answer <nil>
}

func ExampleKeyed() {
	w := timingwheel.New()
	defer w.Stop()
	sessions := timingwheel.NewKeyed[string](w)
	expire := func() { fmt.Println("expired") }
	sessions.Schedule("alice", time.Hour, expire)
	replaced, _ := sessions.Schedule("alice", 2*time.Hour, expire)
	fmt.Println("replaced:", replaced)
	fmt.Println("put off:", sessions.Reset("alice", 3*time.Hour))
	fmt.Println("logged out in time:", sessions.Cancel("alice"))
	// Output:
	// replaced: true
	// put off: true
	// logged out in time: true
}

// At the end of the program, what has not run is written down with its key.
func ExampleKeyed_Drain() {
	w := timingwheel.New()
	defer w.Stop()
	reminders := timingwheel.NewKeyed[string](w)
	reminders.Schedule("rent", time.Hour, func() { fmt.Println("pay the rent") })
	for key, at := range reminders.All() {
		fmt.Println(key, "is due within the hour:", time.Until(at) <= time.Hour+time.Millisecond)
	}
	for _, p := range reminders.Drain() {
		fmt.Println("to be stored:", p.Key)
	}
	fmt.Println(reminders.Len(), "left")
	// Output:
	// rent is due within the hour: true
	// to be stored: rent
	// 0 left
}

// A connection has several timers, which end with it.
func ExampleGroup() {
	w := timingwheel.New()
	defer w.Stop()
	timers := timingwheel.NewGroup(w)
	idle := timers.AfterFunc(time.Minute, func() { fmt.Println("idle for a minute") })
	timers.Schedule(time.Hour, func() { fmt.Println("open for an hour") })
	timers.Schedule(10*time.Second, func() { fmt.Println("no login") })
	idle.Reset(time.Minute) // traffic
	fmt.Println(timers.Stop(), "will not run")
	fmt.Println(w.Len(), "pending")
	_, err := timers.Schedule(time.Second, func() {})
	fmt.Println(err)
	// Output:
	// 3 will not run
	// 0 pending
	// timingwheel: stopped
}

func ExampleWithPanicHandler() {
	caught := make(chan any)
	w := timingwheel.New(timingwheel.WithPanicHandler(func(recovered any, stack []byte) { caught <- recovered }))
	defer w.Stop()
	w.AfterFunc(time.Millisecond, func() { panic("oops") })
	fmt.Println(<-caught)
	// Output: oops
}

func ExampleSurvivePanics() {
	recovered, polled := make(chan any, 1), make(chan string)
	w := timingwheel.New(timingwheel.WithPanicHandler(func(r any, stack []byte) { recovered <- r }))
	defer w.Stop()
	n := 0
	w.ScheduleAtFixedRate(0, 20*time.Millisecond, func() {
		switch n++; n {
		case 1:
			panic("no connection")
		case 2:
			polled <- "polled"
		}
	}, timingwheel.SurvivePanics())
	fmt.Println("recovered:", <-recovered)
	fmt.Println(<-polled)
	// Output:
	// recovered: no connection
	// polled
}

func ExampleTimingWheel_Stop() {
	w := timingwheel.New()
	w.AfterFunc(time.Hour, func() { fmt.Println("a message that must not be lost") })
	for _, p := range w.Stop() {
		p.Func() // or not, if the program keeps its own record of what to do again
	}
	_, err := w.Schedule(time.Second, func() {})
	fmt.Println(errors.Is(err, timingwheel.ErrStopped))
	// Output:
	// a message that must not be lost
	// true
}

func ExampleTimingWheel_Drive() {
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
	defer w.Stop()
	w.AfterFunc(time.Millisecond, func() { fmt.Println("tick") })
	for w.Len() > 0 {
		w.Drive(time.Second)
	}
	// Output: tick
}

// A day with two meetings passes in an instant.
func ExampleTimingWheel_Advance() {
	morning := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	w := timingwheel.New(timingwheel.WithManualClock(morning))
	defer w.Stop()
	w.ScheduleAt(morning.Add(90*time.Minute), func() {
		fmt.Println(w.Now().Format(time.Kitchen), "meeting, goes on for two hours")
		w.Schedule(2*time.Hour, func() { fmt.Println(w.Now().Format(time.Kitchen), "is over") })
	})
	w.ScheduleAt(morning.Add(6*time.Hour), func() { fmt.Println(w.Now().Format(time.Kitchen), "another") })
	w.Advance(10 * time.Hour)
	fmt.Println(w.Now().Format(time.Kitchen), "time to go home")
	// Output:
	// 9:30AM meeting, goes on for two hours
	// 11:30AM is over
	// 2:00PM another
	// 6:00PM time to go home
}

func ExampleExecutorFunc() {
	// At most two tasks at a time. While both are busy the driver waits, and with
	// it everything else on the wheel: that is the price of the bound.
	slots := make(chan struct{}, 2)
	bounded := timingwheel.ExecutorFunc(func(task func()) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			task()
		}()
	})
	w := timingwheel.New(timingwheel.WithExecutor(bounded))
	defer w.Stop()
	done := make(chan struct{})
	w.AfterFunc(time.Millisecond, func() { fmt.Println("one of two"); close(done) })
	<-done
	// Output: one of two
}

func ExampleInline() {
	w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1))
	defer w.Stop()
	done := make(chan struct{})
	for i := range 3 {
		w.AfterFunc(time.Duration(10*i)*time.Millisecond, func() { fmt.Println("task", i) })
	}
	w.AfterFunc(20*time.Millisecond, func() { close(done) })
	<-done
	// Output:
	// task 0
	// task 1
	// task 2
}

func ExampleWithMaxPending() {
	w := timingwheel.New(timingwheel.WithMaxPending(1))
	defer w.Stop()
	first, err := w.Schedule(time.Hour, func() {})
	fmt.Println(err)
	_, err = w.Schedule(time.Hour, func() {})
	fmt.Println(err, errors.Is(err, timingwheel.ErrTooManyPending))
	first.Cancel()
	_, err = w.Schedule(time.Hour, func() {})
	fmt.Println(err)
	// Output:
	// <nil>
	// timingwheel: too many pending true
	// <nil>
}

// A task that is pending a second after the signal to end is handed back instead.
func ExampleTimingWheel_Shutdown() {
	w := timingwheel.New()
	w.Schedule(10*time.Millisecond, func() { fmt.Println("soon") })
	w.Schedule(time.Hour, func() { fmt.Println("in an hour") })

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := w.Shutdown(ctx); err != nil {
		fmt.Println(err)
		fmt.Println("handed back:", len(w.Stop()))
	}
	// Output:
	// soon
	// timingwheel: Shutdown: context deadline exceeded
	// handed back: 1
}

func ExampleTimingWheel_Stats() {
	w := timingwheel.New()
	defer w.Stop()
	w.AfterFunc(time.Minute, func() { fmt.Println("request timed out") }).Stop()
	w.AfterFunc(time.Hour, func() { fmt.Println("session expired") })
	st := w.Stats()
	fmt.Println(st.Scheduled, "scheduled,", st.Stopped, "canceled,", st.Expired, "fired,", st.Pending, "pending")
	fmt.Println("late by at most", st.Lateness.P99, "in 99 of 100 cases, and never by more than", st.Lateness.Max)
	for i, l := range st.Levels {
		fmt.Println("level", i, "of", l.Slots, "slots of", l.Tick, "holds", l.Entries)
	}
	// Output:
	// 2 scheduled, 1 canceled, 0 fired, 1 pending
	// late by at most 0s in 99 of 100 cases, and never by more than 0s
	// level 0 of 512 slots of 1ms holds 0
	// level 1 of 512 slots of 512ms holds 0
	// level 2 of 512 slots of 4m22.144s holds 1
}

// Stats encodes to JSON, so that package expvar can serve it at /debug/vars.
func ExampleTimingWheel_Stats_expvar() {
	w := timingwheel.New()
	defer w.Stop()
	expvar.Publish("sessions", expvar.Func(func() any { return w.Stats() }))

	w.AfterFunc(time.Hour, func() { fmt.Println("session expired") })
	var seen struct{ Scheduled, Pending int }
	if err := json.Unmarshal([]byte(expvar.Get("sessions").String()), &seen); err != nil {
		fmt.Println(err)
	}
	fmt.Println(seen.Pending, "of", seen.Scheduled, "pending")
	// Output: 1 of 1 pending
}

func ExampleTimingWheel_Snapshot() {
	w := timingwheel.New(timingwheel.WithWheelSize(8), timingwheel.WithTick(time.Second), timingwheel.WithManualClock(time.Now()))
	defer w.Stop()
	for _, s := range []time.Duration{2, 2, 5, 20, 50} {
		w.AfterFunc(s*time.Second, func() { fmt.Println("expired") })
	}
	sn := w.Snapshot(1)
	for _, l := range sn.Levels {
		fmt.Println(l.Tick, l.Occupied)
	}
	fmt.Println("the next one in", sn.Next[0].Sub(w.Now()))
	// Output:
	// 1s [0 0 2 0 0 1 0 0]
	// 8s [0 0 1 0 0 0 1 0]
	// the next one in 2s
}
