package enginetest

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// Silencer is a Store whose connections to one of its engines can fail without being
// closed. The tests Silence and HalfOpen skip other Stores.
type Silencer interface {
	// OpenSilent is Open of an engine that has such connections.
	OpenSilent(t testing.TB) (driver.Engine, Line)
}

// Line carries the connections of an engine.
type Line struct {
	Silence func() // Stops all data, so that sent data fills up the connection.
	Heal    func() // Ends the silence: all that was sent passes.
	Sever   func() // Stops all data on the present connections; new ones work.
}

// soon is how long after its context a call may return. It is a bound, not a measure: what
// does not return waits for the end of the silence.
const soon = time.Minute

// silence: every call of an engine and of its workers returns when its context ends, though
// nothing is answered, and however much waits to be sent. When the silence is over, the
// engine works.
func silence(t *testing.T, s Store) {
	store, ok := s.(Silencer)
	if !ok {
		t.Skip("a store that nothing can cut off")
	}
	e, line := store.OpenSilent(t)
	r := open(t, e).handle("late", nil)
	now := engineNow(t, e)
	refs, errs := e.Insert(within(t), []driver.Record{record("a", now, now), record("b", now.Add(time.Hour), now)})
	require.NoError(t, errors.Join(errs...))
	w := newCrashing(t, e, "silent")
	held := w.take(refs[0])
	w.granted(held)
	fed := work(t, e, "fed")
	rules, err := e.FlowControl(within(t))
	require.NoError(t, err)

	line.Silence()
	eachReturns(t, map[string]func(context.Context) error{
		"Health": r.Health,
		"Work": func(ctx context.Context) error {
			_, err := e.Work(ctx, driver.WorkConfig{Name: "other", Kinds: driver.NewKindGate([]string{kind}), Lease: lease})
			return err
		},
		"Fetch": func(ctx context.Context) error { _ = fed.Fetch(ctx, func([]*driver.Delivery) {}); return ctx.Err() },
	}, engineCalls(e, refs[0], refs[1], rules, now), workerCalls(w, held))
	line.Heal()
	if t.Failed() {
		return
	}
	r.start()
	require.Eventually(t, func() bool { return r.Health(within(t)) == nil }, patience, 10*time.Millisecond)
	r.add(durable.Job{Kind: "late"})
	r.awaitRuns(1)
}

// engineCalls are the calls of an engine, with a job that runs and one that is far from due.
func engineCalls(e driver.Engine, running, far durable.Ref, rules *driver.FlowControl, now time.Time) map[string]func(context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Insert": func(ctx context.Context) error {
			_, errs := e.Insert(ctx, []driver.Record{record("c", now, now)})
			return errs[0]
		},
		"Cancel":   func(ctx context.Context) error { _, errs := e.Cancel(ctx, []durable.Ref{far}); return errs[0] },
		"Move":     func(ctx context.Context) error { _, err := e.Move(ctx, far, now.Add(2*time.Hour)); return err },
		"Redrive":  func(ctx context.Context) error { return e.Redrive(ctx, far, now) },
		"Delete":   func(ctx context.Context) error { return e.Delete(ctx, far) },
		"Lookup":   func(ctx context.Context) error { _, err := e.Lookup(ctx, "key"); return err },
		"Get":      func(ctx context.Context) error { _, err := e.Get(ctx, far); return err },
		"Scan":     func(ctx context.Context) error { return firstOf(e.Scan(ctx, driver.Filter{})) },
		"Schedule": func(ctx context.Context) error { _, err := e.Schedule(ctx, "s"); return err },
		"SetSchedule": func(ctx context.Context) error {
			return e.SetSchedule(ctx, 0, driver.Schedule{Name: "s", Definition: "p", Revision: 1}, nil)
		},
		"Schedules": func(ctx context.Context) error { return firstOf(e.Schedules(ctx)) },
		"Unhandled": func(ctx context.Context) error { _, err := e.Unhandled(ctx); return err },
		"Page": func(ctx context.Context) error {
			_, _, err := e.Page(ctx, driver.Filter{State: durable.Waiting}, driver.Cursor{}, 10)
			return err
		},
		"Backlog":        func(ctx context.Context) error { _, err := e.Backlog(ctx); return err },
		"Workers":        func(ctx context.Context) error { _, err := e.Workers(ctx); return err },
		"FlowControl":    func(ctx context.Context) error { _, err := e.FlowControl(ctx); return err },
		"SetFlowControl": func(ctx context.Context) error { return e.SetFlowControl(ctx, rules.Revision(), rules) },
		"Usage":          func(ctx context.Context) error { _, err := e.Usage(ctx); return err },
		"CancelRunning":  func(ctx context.Context) error { _, err := e.CancelRunning(ctx, running); return err },
		"Now":            func(ctx context.Context) error { _, _, err := e.Now(ctx); return err },
	}
}

// workerCalls are the calls of a worker for a job that it has claimed.
func workerCalls(w driver.Worker, held *driver.Delivery) map[string]func(context.Context) error {
	one := []*driver.Delivery{held}
	return map[string]func(ctx context.Context) error{
		"Claim": func(ctx context.Context) error { w.Claim(ctx, one); return ctx.Err() },
		"Finish": func(ctx context.Context) error {
			return w.Finish(ctx, []driver.Completion{{Delivery: held, End: driver.Done}})[0]
		},
		"Release":   func(ctx context.Context) error { _ = w.Release(ctx, one, time.Second); return ctx.Err() },
		"Heartbeat": w.Heartbeat,
	}
}

// eachReturns checks that each call returns soon after its context, and has not succeeded.
func eachReturns(t *testing.T, all ...map[string]func(context.Context) error) {
	calls := map[string]func(context.Context) error{}
	for _, some := range all {
		maps.Copy(calls, some)
	}
	var wg sync.WaitGroup
	inTurn := make(chan struct{}, 1) // one call has one Delivery at a time
	for name, call := range calls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if name == "Claim" || name == "Finish" || name == "Release" {
				inTurn <- struct{}{}
				defer func() { <-inTurn }()
			}
			done := make(chan error, 1)
			go func() { done <- call(ctx) }()
			select {
			case err := <-done:
				if ctx.Err() == nil && err == nil {
					t.Errorf("%s has succeeded", name)
				}
			case <-time.After(soon):
				t.Errorf("%s has not returned %v after its context", name, soon)
			}
		})
	}
	wg.Wait()
}

// halfOpen: a worker whose connections are half open, because the machine at the other end is
// gone and nobody has said so, runs what is due by new ones, and adds jobs. Nothing else is
// done for it, and it does not take minutes.
func halfOpen(t *testing.T, s Store) {
	store, ok := s.(Silencer)
	if !ok {
		t.Skip("a store that nothing can cut off")
	}
	e, line := store.OpenSilent(t)
	r := open(t, e, durable.WithLease(4*time.Second)).handle("late", nil).start()
	r.add(durable.Job{Kind: "late"})
	r.awaitRuns(1)

	line.Sever()
	open(t, s.Open(t)).add(durable.Job{Kind: "late"})
	r.awaitRuns(2)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), lease)
		defer cancel()
		_, err := r.Add(ctx, durable.Job{Kind: "late"})
		return err == nil
	}, patience, 10*time.Millisecond)
	r.awaitRuns(3)
}

// firstOf returns the first error of a sequence.
func firstOf[T any](all func(func(T, error) bool)) (err error) {
	all(func(_ T, e error) bool { err = e; return e == nil })
	return err
}
