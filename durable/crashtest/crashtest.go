// Package crashtest crashes a program's handlers at many places, to test that they are idempotent.
//
// [Run] runs a scenario on durable/memory in virtual time: first without a crash, then once
// for each crash. For each attempt there are crashes
//   - right before the handler begins, and between its return and the commit of its end;
//   - right before and right after each Queue call of the handler that changes jobs, schedules
//     or limits, and in the middle of AddMany; right before Get, Lookup, List and All;
//   - at [Complete] and [Commit], if the handler ends its job in a transaction;
//   - at each [Point].
//
// The scenario must leave the same result behind each time.
//
//	func TestShop(t *testing.T) {
//		crashtest.Run(t, func(t *testing.T, w *crashtest.World) any {
//			db := openDatabase(t) // empty
//			w.Start(func(ctx context.Context, q *durable.Queue) error {
//				q.Handle("charge", charge(db))
//				return q.SetSchedule(ctx, "report", "0 8 * * *", durable.Job{Kind: "report"})
//			})
//			_, err := w.Queue.Add(t.Context(), durable.Job{Kind: "charge", After: time.Hour})
//			require.NoError(t, err)
//			w.Advance(72 * time.Hour)
//			return db.charges()
//		})
//	}
//
// Run cannot see the effects of a handler outside the Queue. A handler that sends a mail and then
// writes a row needs a Point in between. The best place is in the fakes that stand for the mailer
// and the database: a fake that calls Point before and after each effect does so for all handlers.
//
// A crash ends the Queue and all jobs that it has claimed, as kill -9 does. Within a handler it
// ends the goroutine that makes the Queue call or has come to the Point, as [runtime.Goexit]
// does. The deferred functions of the handler run, so that locks of fakes are released; they
// should have no other effect. Other goroutines of the handler end at their next Queue call or Point.
//
// The function
// that was given to Start then makes the next process, on the same store. So variables of
// that function do not survive a crash. Variables outside it stand for the database and
// other services. Another process takes the jobs over at once, and not after a lease.
//
// As in production, a job whose process dies in its last attempt is dead. So a job with
// MaxAttempts 1 does not pass: it runs at most once.
//
// # Handlers that end their job in a transaction
//
// CompleteTx of package postgres makes the effect and the end of a job one commit. On
// durable/memory [Complete] stands in for it, and [Commit] for the commit, so such a handler takes
// the function as a parameter:
//
//	q.Handle("charge", charge(pool, engine.CompleteTx)) // in production
//	q.Handle("charge", charge(pool, func(ctx context.Context, _ pgx.Tx, a *durable.Attempt) error {
//		return crashtest.Complete(ctx, a)
//	}))
package crashtest

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tickwheel/tickwheel/durable"
)

// Scenario starts processes, adds jobs and advances the clock. It returns its result,
// such as the rows of a table, for a comparison by [reflect.DeepEqual]. Everything
// outside the processes must be new in each call.
//
// A scenario has to be the same each time: the same jobs at the same virtual times. It should not
// return Refs, which are random, nor the order of jobs that were due at the same time. Timeouts
// of jobs and leases pass in real time. A backoff of [durable.WithBackoff] must not be random; the
// default one is not random here. Jobs that have not ended when it returns may have begun or not:
// let the last call be [World.Advance].
type Scenario func(t *testing.T, w *World) any

// Run runs the scenario twice without a crash, then with each crash in a subtest. It
// stops at the first crash that changes the result. The subtest is named after the crash:
// place, kind, attempt and virtual time; the failure says how to run it alone.
//
// All Queues get the options. A process runs one handler at a time, whatever WithConcurrency
// says, so that a crash is that of one attempt. The default logger is silent.
//
// For n attempts Run makes 2n runs and one for each place within a handler, so keep n in the
// hundreds. A run takes about a millisecond
// for some thirty attempts, without the time that handlers take.
func Run(t *testing.T, s Scenario, opts ...durable.Option) {
	t.Helper()
	want, moments := once(t, s, opts, nil)
	again, others := once(t, s, opts, nil)
	if !reflect.DeepEqual(want, again) {
		t.Fatalf("crashtest: the scenario is not the same each time. Without a crash it leaves\n%+v\nand then\n%+v", want, again)
	}
	crashes := number(moments, true)
	if !reflect.DeepEqual(crashes, number(others, true)) {
		crashes = number(moments, false) // payloads differ each time, by a Ref perhaps
	}
	for _, c := range crashes {
		if !t.Run(c.name, func(t *testing.T) { try(t, s, opts, &c, want) }) {
			return
		}
	}
	t.Logf("crashtest: the same after each of %d crashes", len(crashes))
}

// try runs the scenario with one crash. If it does not come to the moment, since jobs have come in
// another order, the process crashes at the moment of the same number.
func try(t *testing.T, s Scenario, opts []durable.Option, c *crash, want any) {
	t.Helper()
	got, _ := once(t, s, opts, c)
	if c.ref == "" {
		c.any = true
		got, _ = once(t, s, opts, c)
	}
	switch {
	case c.ref == "":
		t.Fatalf("crashtest: the scenario is not the same each time: it has not come to the %s", c.name)
	case !reflect.DeepEqual(got, want):
		name := c.name
		if c.any {
			name = c.hit.String()
		}
		t.Errorf("crashtest: a crash at the %s (job %s) leaves\n%+v\ninstead of\n%+v%s\nAlone: go test -run '%s'",
			name, c.ref, got, want, c.died, pattern(t.Name()))
	}
}

// once runs the scenario in a new World, with a crash if c is not nil.
func once(t *testing.T, s Scenario, opts []durable.Option, c *crash) (left any, all []moment) {
	t.Helper()
	w := open(t, opts, c)
	defer w.close()
	left = s(t, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if c != nil && c.ref != "" {
		c.died = w.death(c.ref)
	}
	return left, w.moments
}

// death says why a job is dead, if it is.
func (w *World) death(ref durable.Ref) string {
	info, err := w.Queue.Get(w.ctx, ref)
	if err != nil || info.State != durable.Dead {
		return ""
	}
	return fmt.Sprintf("\nThe job is dead: %s", info.LastError)
}

// pattern returns what -run takes for one test.
func pattern(name string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}
