package crashtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/crashtest"
)

var errNo = errors.New("no")

func TestExample(t *testing.T) { crashtest.Run(t, threeDays) }

// add adds jobs through the World's own Queue.
func add(t *testing.T, w *crashtest.World, jobs ...durable.Job) {
	t.Helper()
	_, err := w.Queue.AddMany(t.Context(), jobs...)
	require.NoError(t, err)
}

// handles returns a setup that has one handler, for the kind "job".
func handles(h durable.Handler) func(context.Context, *durable.Queue) error {
	return func(_ context.Context, q *durable.Queue) error {
		q.Handle("job", h)
		return nil
	}
}

// shop has three days of charges, of which each first attempt fails, and a report each 6 hours.
// A charge is made once for each name that is returned by call.
func shop(call func(*durable.Attempt) string) crashtest.Scenario {
	return func(t *testing.T, w *crashtest.World) any {
		charged, reports := map[string]bool{}, map[time.Time]bool{}
		w.Start(func(ctx context.Context, q *durable.Queue) error {
			q.Handle("charge", func(_ context.Context, a *durable.Attempt) error {
				if a.Number == 1 {
					return durable.RetryAfter(time.Hour, errNo)
				}
				charged[call(a)] = true
				return nil
			})
			q.Handle("report", func(_ context.Context, a *durable.Attempt) error {
				reports[a.Occurrence.UTC()] = true
				return nil
			})
			return q.SetSchedule(ctx, "report", "0 */6 * * *", durable.Job{Kind: "report"})
		})
		for i := range 10 {
			add(t, w, durable.Job{Kind: "charge", After: time.Duration(i) * 5 * time.Hour})
		}
		w.Advance(72 * time.Hour)
		return fmt.Sprintf("%d charges, %d reports", len(charged), len(reports))
	}
}

func byRef(a *durable.Attempt) string { return string(a.Ref) }

// A correct handler passes. Each crash comes once, and is of one attempt: it costs a process, and
// at an end a call of the handler.
func TestCorrectHandlerPasses(t *testing.T) {
	var runs, processes, calls int
	good := shop(func(a *durable.Attempt) string {
		calls++
		return byRef(a)
	})
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		runs++
		return good(t, w)
	}, durable.WithMiddleware(durable.Middleware{Handle: func(next durable.Handler) durable.Handler {
		processes++
		return next
	}}))
	const attempts, kinds = 2*10 + 12, 2 // of charges and reports
	require.Equal(t, 2+2*attempts, runs)
	require.Equal(t, (runs+2*attempts)*kinds, processes)
	require.Equal(t, runs*10+10, calls, "a call for each charge, and one more after a crash at its end")
}

// A job that is snoozed, and one that fails in each way, ends each time at the same virtual
// time.
func TestEachEndOfAnAttempt(t *testing.T) {
	for name, end := range map[string]func() error{
		"snoozed":   func() error { return durable.Snooze(time.Hour) },
		"failed":    func() error { return durable.RetryAfter(time.Hour, errNo) },
		"backoff":   func() error { return errNo },
		"discarded": func() error { return durable.Discard(errNo) },
		"panicked":  func() error { panic("no") },
		"exited":    func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
				done := map[string]time.Time{}
				w.Start(handles(func(_ context.Context, a *durable.Attempt) error {
					if a.Due.Equal(a.Job.At) {
						return end()
					}
					done[string(a.Job.Payload)] = w.Now()
					return nil
				}))
				add(t, w, durable.Job{Kind: "job", After: time.Hour}, durable.Job{Kind: "job", After: time.Hour, Payload: []byte("b")})
				w.Advance(24 * time.Hour)
				dead := 0
				for _, err := range w.Queue.All(t.Context(), durable.Filter{State: durable.Dead}) {
					require.NoError(t, err)
					dead++
				}
				if name == "discarded" {
					require.Equal(t, 2, dead)
				} else {
					require.Len(t, done, 2)
				}
				return []any{done, dead}
			}, durable.WithBackoff(func(int) time.Duration { return time.Hour }))
		})
	}
}

// orders has orders that wait for a payment or for their deadline, and fail once after that, and a
// report each six hours that is snoozed for one. A payment reports what Signal has returned.
func orders(report func(refused map[string]bool, order string)) crashtest.Scenario {
	return func(t *testing.T, w *crashtest.World) any {
		ends, refused, reports := map[string]string{}, map[string]bool{}, map[time.Time]time.Time{}
		w.Start(func(ctx context.Context, q *durable.Queue) error {
			q.Handle("order", func(_ context.Context, a *durable.Attempt) error {
				if h := w.Now().Hour(); h == 0 || h == 5 { // a crash makes the next attempt the second
					return durable.RetryAfter(time.Hour, errNo)
				}
				ends[a.Job.Key] = fmt.Sprint(w.Now().Sub(a.Job.At), a.Signaled, string(a.Signal))
				return nil
			})
			q.Handle("payment", func(ctx context.Context, a *durable.Attempt) error {
				order := string(a.Job.Payload)
				ok, err := q.Signal(ctx, order, []byte("paid"))
				if err == nil && !ok {
					report(refused, order)
				}
				return err
			})
			q.Handle("report", func(_ context.Context, a *durable.Attempt) error {
				if w.Now().Before(a.Occurrence.Add(time.Hour)) {
					return durable.Snooze(time.Hour)
				}
				reports[a.Occurrence.UTC()] = w.Now()
				return nil
			})
			return q.SetSchedule(ctx, "report", "0 */6 * * *", durable.Job{Kind: "report"})
		})
		for _, order := range []string{"paid", "late", "expired"} {
			add(t, w, durable.Job{Kind: "order", Key: order, Signals: true, At: w.Now().Add(24 * time.Hour)})
		}
		add(t, w, durable.Job{Kind: "payment", After: 5 * time.Hour, Payload: []byte("paid")},
			durable.Job{Kind: "payment", After: 30 * time.Hour, Payload: []byte("late")})
		w.Advance(48*time.Hour + 90*time.Minute)
		require.Len(t, ends, 3)
		return []any{ends, refused, reports}
	}
}

// A signal is seen by each attempt after it, wherever the process crashes, and a payment after a crash
// finds that the order has it.
func TestSignalAndSnooze(t *testing.T) {
	scenario := orders(func(refused map[string]bool, order string) {
		if order == "late" {
			refused[order] = true
		}
	})
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		left := scenario(t, w).([]any)
		require.Equal(t, map[string]string{"paid": "-18h0m0s truepaid", "late": "1h0m0s false", "expired": "1h0m0s false"}, left[0])
		require.Len(t, left[2], 8)
		return left
	})
}

// Handlers run one at a time, whatever the options say.
func TestOneHandlerAtATime(t *testing.T) {
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		var running, most atomic.Int32
		w.Start(handles(func(context.Context, *durable.Attempt) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Millisecond) // else others might come too late to be seen
			running.Add(-1)
			return nil
		}))
		for range 5 {
			add(t, w, durable.Job{Kind: "job"})
		}
		w.Advance(0)
		require.EqualValues(t, 1, most.Load())
		return nil
	}, durable.WithConcurrency(8))
}

// A handler that runs when the scenario returns is ended, and its end is no crash.
func TestScenarioReturnsEarly(t *testing.T) {
	returned := 0
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		begun := make(chan bool, 1)
		w.Start(handles(func(ctx context.Context, _ *durable.Attempt) error {
			begun <- true
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		add(t, w, durable.Job{Kind: "job"})
		<-begun
		returned++
		return nil
	})
	require.Equal(t, 2+1, returned, "twice without a crash, and with one at the begin")
}

// Under a limit a crash costs a token, and all jobs run.
func TestLimit(t *testing.T) {
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		ran := map[durable.Ref]bool{}
		w.Start(func(ctx context.Context, q *durable.Queue) error {
			q.Handle("job", func(_ context.Context, a *durable.Attempt) error {
				ran[a.Ref] = true
				return nil
			})
			return q.SetLimit(ctx, "hourly", durable.Limit{Kind: "job", Rate: 1.0 / 3600, Burst: 1, Running: 1})
		})
		for range 5 {
			add(t, w, durable.Job{Kind: "job"})
		}
		w.Advance(24 * time.Hour)
		return len(ran)
	})
}

// Two processes, of which one adds jobs for the other. Payloads have Refs, which differ each time.
func TestTwoProcesses(t *testing.T) {
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		mailed := map[string]bool{}
		w.Start(func(_ context.Context, q *durable.Queue) error {
			q.Handle("order", func(ctx context.Context, a *durable.Attempt) error {
				_, err := q.Add(ctx, durable.Job{Kind: "job", Payload: []byte(a.Ref)})
				return err
			})
			return nil
		})
		w.Start(handles(func(_ context.Context, a *durable.Attempt) error {
			mailed[string(a.Job.Payload)] = true
			return nil
		}))
		for i := range 3 {
			add(t, w, durable.Job{Kind: "order", After: time.Duration(i) * time.Minute})
		}
		w.Advance(time.Hour)
		return len(mailed)
	})
}

// A handler whose effect and end are one commit need not be idempotent; one that rolls back has
// neither.
func TestComplete(t *testing.T) {
	runs := 0
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		runs++
		sum, rollback := 0, true
		w.Start(func(ctx context.Context, q *durable.Queue) error {
			q.Handle("job", func(ctx context.Context, a *durable.Attempt) error {
				if err := crashtest.Complete(ctx, a); err != nil {
					return err
				}
				if rollback {
					rollback = false
					return durable.RetryAfter(time.Minute, errNo)
				}
				sum++ // it commits
				return nil
			})
			return q.SetSchedule(ctx, "hourly", "@every 1h", durable.Job{Kind: "job"})
		})
		w.Advance(5*time.Hour + 30*time.Minute)
		require.Equal(t, 5, sum)
		return sum
	})
	require.Equal(t, 2+6+6+1, runs, "a crash at each begin, at each Complete, and at the end that was rolled back")
}

// A job with the default backoff, which is random elsewhere, is due at the same times in each run.
func TestDefaultBackoff(t *testing.T) {
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		begins := map[time.Time]bool{}
		w.Start(handles(func(_ context.Context, a *durable.Attempt) error {
			begins[w.Now()] = true
			if a.Number < 4 {
				return errNo
			}
			return nil
		}))
		add(t, w, durable.Job{Kind: "job"}, durable.Job{Kind: "job"})
		w.Advance(time.Hour)
		return len(begins)
	})
}

// Handlers of one kind that do different things, and whose order a limit spreads over hours, come in
// the same order in each run.
func TestOrderUnderLimit(t *testing.T) {
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		ran := map[string]bool{}
		w.Start(func(ctx context.Context, q *durable.Queue) error {
			q.Handle("job", func(ctx context.Context, a *durable.Attempt) error {
				crashtest.Point(ctx, string(a.Job.Payload))
				ran[string(a.Job.Payload)] = true
				return nil
			})
			return q.SetLimit(ctx, "hourly", durable.Limit{Kind: "job", Rate: 1.0 / 3600, Burst: 1})
		})
		for i := range 6 {
			add(t, w, durable.Job{Kind: "job", Payload: fmt.Append(nil, i)})
		}
		w.Advance(24 * time.Hour)
		return len(ran)
	})
}

// A crash within a handler ends it at once: its deferred functions run, and nothing else.
func TestCrashWithinHandler(t *testing.T) {
	var processes, unlocked, runs int
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		runs++
		added := map[string]bool{}
		w.Start(func(_ context.Context, q *durable.Queue) error {
			processes++
			q.Handle("other", func(_ context.Context, a *durable.Attempt) error {
				added[string(a.Job.Payload)] = true
				return nil
			})
			return handles(func(ctx context.Context, a *durable.Attempt) error {
				gone := true
				defer func() {
					if gone {
						unlocked++
					}
				}()
				crashtest.Point(ctx, "first")
				refs, err := q.AddMany(context.Background(), durable.Job{Kind: "other", Payload: []byte("a"), After: time.Hour},
					durable.Job{Kind: "other", Payload: []byte("b"), After: time.Hour})
				require.NoError(t, err, "a dead process does not go on")
				_, err = q.Reschedule(ctx, refs[0], w.Now().Add(2*time.Hour))
				require.NoError(t, err, "a dead process does not go on")
				_, err = q.Get(ctx, refs[0])
				require.NoError(t, err, "a dead process does not go on")
				gone = false
				return nil
			})(t.Context(), q)
		})
		add(t, w, durable.Job{Kind: "job"})
		w.Advance(5 * time.Hour)
		return len(added)
	})
	const within = 1 + 3 + 2 + 1 // Point, AddMany in part or not, Reschedule, Get
	require.Equal(t, within, unlocked)
	const attempts = 1 + 2 // of the job, and of those that it adds
	require.Equal(t, 2+within+2*attempts, runs)
	require.Equal(t, runs+within+2*attempts, processes)
}

// A handler that writes its row and the end of its job in one commit, and mails through a job that
// it adds under a key, passes.
func TestCommit(t *testing.T) {
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		rows, mails := 0, map[string]bool{}
		w.Start(func(_ context.Context, q *durable.Queue) error {
			q.Handle("mail", func(_ context.Context, a *durable.Attempt) error {
				mails[string(a.Job.Payload)] = true
				return nil
			})
			return handles(func(ctx context.Context, a *durable.Attempt) error {
				_, err := q.Add(ctx, durable.Job{Kind: "mail", Payload: []byte(a.Ref)})
				require.NoError(t, err)
				require.NoError(t, crashtest.Complete(ctx, a))
				crashtest.Commit(ctx, func() { rows++ })
				return nil
			})(t.Context(), q)
		})
		add(t, w, durable.Job{Kind: "job"}, durable.Job{Kind: "job"})
		w.Advance(time.Hour)
		return []int{rows, len(mails)}
	})
}

// Commit without Complete is of any other transaction: the end of the job comes later.
func TestCommitAlone(t *testing.T) {
	crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
		rows := map[durable.Ref]bool{}
		w.Start(handles(func(ctx context.Context, a *durable.Attempt) error {
			crashtest.Commit(ctx, func() { rows[a.Ref] = true })
			crashtest.Commit(ctx, nil)
			return nil
		}))
		add(t, w, durable.Job{Kind: "job"})
		w.Advance(time.Hour)
		return len(rows)
	})
}

func TestPointOutsideOfHandler(t *testing.T) { crashtest.Point(t.Context(), "x") }

func TestCompleteOutsideOfHandler(t *testing.T) {
	require.PanicsWithValue(t, "crashtest: Commit: the context is not that of a handler that Run has called",
		func() { crashtest.Commit(t.Context(), nil) })
	require.PanicsWithValue(t, "crashtest: Complete: the context is not that of a handler that Run has called",
		func() { crashtest.Complete(t.Context(), &durable.Attempt{}) })
}
