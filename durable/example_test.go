package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/memory"
)

var ctx = context.Background()

// at is how the examples print a time.
const at = "Jan 2 15:04:05"

// open returns a Queue on an engine in memory, and its clock, which shows the morning of March
// 1st, a Sunday, and is moved by hand. In a program the engine is one that keeps the jobs.
func open(opts ...durable.Option) (*durable.Queue, *memory.Clock) {
	clock := memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	opts = append(opts, durable.WithLogger(slog.New(slog.DiscardHandler)))
	q, err := durable.Open(ctx, memory.New(clock).Open(), opts...)
	check(err)
	return q, clock
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func ExampleQueue_Add() {
	q, clock := open()
	defer q.Close()
	q.Handle("remind", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("%s: %s\n", clock.Now().Format(at), a.Job.Payload)
		return nil
	})
	go q.Run(ctx)

	_, err := q.Add(ctx, durable.Job{Kind: "remind", After: 72 * time.Hour, Payload: []byte("pay the bill")})
	check(err)
	check(clock.Advance(ctx, 72*time.Hour))
	// Output: Mar 4 09:00:00: pay the bill
}

// A key is held by one job at a time: a second order is refused until the first has ended.
func ExampleQueue_Add_key() {
	q, _ := open()
	defer q.Close()
	_, err := q.Add(ctx, durable.Job{Kind: "remind", Key: "order 7", After: time.Hour})
	check(err)
	_, err = q.Add(ctx, durable.Job{Kind: "remind", Key: "order 7", After: 2 * time.Hour})
	fmt.Println(errors.Is(err, durable.ErrExists))
	canceled, err := q.CancelKey(ctx, "order 7")
	check(err)
	fmt.Println(canceled)
	// Output:
	// true
	// true
}

// Jobs that are added together share commits. One that there cannot be is named, and none is
// stored.
func ExampleQueue_AddMany() {
	q, _ := open()
	defer q.Close()
	refs, err := q.AddMany(ctx, durable.Job{Kind: "mail", Payload: []byte("a")}, durable.Job{Kind: "mail", Payload: []byte("b")})
	check(err)
	fmt.Println(len(refs), q.Stats().Added)
	_, err = q.AddMany(ctx, durable.Job{Kind: "mail"}, durable.Job{})
	fmt.Println(err)
	// Output:
	// 2 2
	// durable: AddMany: job 1: durable: invalid: the kind is empty
}

// An error of a handler leads to another attempt after the backoff, until MaxAttempts have begun.
func ExampleQueue_Handle() {
	q, clock := open(durable.WithBackoff(func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }))
	defer q.Close()
	q.Handle("call", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("%s: attempt %d\n", clock.Now().Format(at), a.Number)
		return errors.New("nobody answers")
	})
	go q.Run(ctx)

	ref, err := q.Add(ctx, durable.Job{Kind: "call", MaxAttempts: 3})
	check(err)
	check(clock.Advance(ctx, time.Hour))
	info, err := q.Get(ctx, ref)
	check(err)
	fmt.Println(info.State, len(info.Errors), info.LastError)
	// Output:
	// Mar 1 09:00:00: attempt 1
	// Mar 1 09:01:00: attempt 2
	// Mar 1 09:03:00: attempt 3
	// dead 3 nobody answers
}

func ExampleHandleJSON() {
	type mail struct{ To, Subject string }
	q, clock := open()
	defer q.Close()
	durable.HandleJSON(q, "mail", func(_ context.Context, _ *durable.Attempt, m mail) error {
		fmt.Printf("%s to %s\n", m.Subject, m.To)
		return nil
	})
	go q.Run(ctx)

	_, err := durable.AddJSON(ctx, q, durable.Job{Kind: "mail"}, mail{"ann", "hello"})
	check(err)
	check(clock.Advance(ctx, 0))
	// Output: hello to ann
}

func ExampleQueue_Cancel() {
	q, clock := open()
	defer q.Close()
	q.Handle("remind", func(context.Context, *durable.Attempt) error {
		fmt.Println("it runs")
		return nil
	})
	go q.Run(ctx)

	ref, err := q.Add(ctx, durable.Job{Kind: "remind", After: time.Hour})
	check(err)
	canceled, err := q.Cancel(ctx, ref)
	check(err)
	check(clock.Advance(ctx, 2*time.Hour))
	again, err := q.Cancel(ctx, ref)
	check(err)
	fmt.Println(canceled, again)
	// Output: true false
}

func ExampleQueue_Reschedule() {
	q, clock := open()
	defer q.Close()
	q.Handle("remind", func(context.Context, *durable.Attempt) error {
		fmt.Println(clock.Now().Format(at))
		return nil
	})
	go q.Run(ctx)

	ref, err := q.Add(ctx, durable.Job{Kind: "remind", After: time.Hour})
	check(err)
	moved, err := q.Reschedule(ctx, ref, clock.Now().Add(5*time.Hour))
	check(err)
	fmt.Println(moved)
	check(clock.Advance(ctx, 24*time.Hour))
	// Output:
	// true
	// Mar 1 14:00:00
}

// Working days at half past eight in Berlin, which is on summer time from March 29th on.
func ExampleQueue_SetSchedule() {
	q, clock := open()
	defer q.Close()
	q.Handle("report", func(_ context.Context, a *durable.Attempt) error {
		fmt.Println(a.Occurrence.UTC().Format("Mon " + at))
		return nil
	})
	go q.Run(ctx)

	clock.Set(time.Date(2026, 3, 26, 12, 0, 0, 0, time.UTC))
	check(q.SetSchedule(ctx, "report", "CRON_TZ=Europe/Berlin 30 8 * * MON-FRI", durable.Job{Kind: "report"}))
	check(clock.Advance(ctx, 5*24*time.Hour))
	// Output:
	// Fri Mar 27 07:30:00
	// Mon Mar 30 06:30:00
	// Tue Mar 31 06:30:00
}

// Times that no cron expression says: the handler adds the next job, under a Key that two runs of
// one job share. So one of them is stored.
func ExampleQueue_Add_next() {
	q, clock := open()
	defer q.Close()
	began := clock.Now()
	q.Handle("look", func(ctx context.Context, a *durable.Attempt) error {
		fmt.Println(clock.Now().Format(at))
		next := a.Job.At.Add(a.Job.At.Sub(began)) // after 1, 2, 4, 8 hours
		_, err := q.Add(ctx, durable.Job{Kind: "look", At: next, Key: "look " + next.Format(time.RFC3339)})
		if errors.Is(err, durable.ErrExists) {
			return nil // an earlier attempt has added it
		}
		return err
	})
	go q.Run(ctx)

	_, err := q.Add(ctx, durable.Job{Kind: "look", After: time.Hour, Key: "look"})
	check(err)
	check(clock.Advance(ctx, 9*time.Hour))
	// Output:
	// Mar 1 10:00:00
	// Mar 1 11:00:00
	// Mar 1 13:00:00
	// Mar 1 17:00:00
}

// A handler that finds that it is too early asks for another attempt, and that counts none.
func ExampleSnooze() {
	q, clock := open()
	defer q.Close()
	ready := clock.Now().Add(90 * time.Minute)
	q.Handle("ship", func(_ context.Context, a *durable.Attempt) error {
		if clock.Now().Before(ready) {
			return durable.Snooze(time.Hour)
		}
		fmt.Printf("%s: attempt %d\n", clock.Now().Format(at), a.Number)
		return nil
	})
	go q.Run(ctx)

	_, err := q.Add(ctx, durable.Job{Kind: "ship"})
	check(err)
	check(clock.Advance(ctx, 24*time.Hour))
	// Output: Mar 1 11:00:00: attempt 1
}

func ExampleRetryAfter() {
	q, clock := open()
	defer q.Close()
	q.Handle("call", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("%s: attempt %d\n", clock.Now().Format(at), a.Number)
		if a.Number == 1 {
			return durable.RetryAfter(30*time.Minute, errors.New("429 Too Many Requests"))
		}
		return nil
	})
	go q.Run(ctx)

	_, err := q.Add(ctx, durable.Job{Kind: "call"})
	check(err)
	check(clock.Advance(ctx, time.Hour))
	// Output:
	// Mar 1 09:00:00: attempt 1
	// Mar 1 09:30:00: attempt 2
}

// An API asks for a rest of half an hour: no job of the kind begins in any process until then.
func ExampleCooldown() {
	q, clock := open()
	defer q.Close()
	busy := true
	q.Handle("call", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("%s: %s, attempt %d\n", clock.Now().Format(at), a.Job.Payload, a.Number)
		if busy {
			busy = false
			return durable.Cooldown(30*time.Minute, errors.New("429 Too Many Requests"))
		}
		return nil
	})
	go q.Run(ctx)

	_, err := q.Add(ctx, durable.Job{Kind: "call", Payload: []byte("one")})
	check(err)
	check(clock.Advance(ctx, 10*time.Minute))
	_, err = q.Add(ctx, durable.Job{Kind: "call", Payload: []byte("two")})
	check(err)
	check(clock.Advance(ctx, time.Hour))
	// Unordered output:
	// Mar 1 09:00:00: one, attempt 1
	// Mar 1 09:30:00: one, attempt 1
	// Mar 1 09:30:00: two, attempt 1
}

// A pause with an end needs no Resume.
func ExampleQueue_PauseFor() {
	q, clock := open()
	defer q.Close()
	q.Handle("mail", func(context.Context, *durable.Attempt) error {
		fmt.Println(clock.Now().Format(at))
		return nil
	})
	go q.Run(ctx)

	check(q.PauseFor(ctx, durable.Pausable{Kind: "mail"}, time.Hour))
	_, err := q.Add(ctx, durable.Job{Kind: "mail"})
	check(err)
	check(clock.Advance(ctx, 2*time.Hour))
	// Output: Mar 1 10:00:00
}

// What is of no use to try again is dead at once, and listed until somebody has looked at it.
func ExampleDiscard() {
	q, clock := open()
	defer q.Close()
	mended := false
	q.Handle("mail", func(context.Context, *durable.Attempt) error {
		if !mended {
			return durable.Discard(errors.New("no such address"))
		}
		fmt.Println("sent")
		return nil
	})
	go q.Run(ctx)

	_, err := q.AddMany(ctx, durable.Job{Kind: "mail", Key: "a"}, durable.Job{Kind: "mail", Key: "b"})
	check(err)
	check(clock.Advance(ctx, 0))
	mended = true
	for info, err := range q.All(ctx, durable.Filter{State: durable.Dead}) {
		check(err)
		if info.Job.Key == "a" {
			check(q.Redrive(ctx, info.Ref))
		} else {
			check(q.Delete(ctx, info.Ref))
		}
	}
	check(clock.Advance(ctx, 0))
	// Output: sent
}

// Each Add notes who has asked, and each attempt is logged with it.
func ExampleWithMiddleware() {
	asking := "ann"
	who := durable.Middleware{
		Add: func(next durable.AddFunc) durable.AddFunc {
			return func(ctx context.Context, jobs []durable.Job) ([]durable.Ref, error) {
				for i := range jobs {
					jobs[i].Meta = map[string]string{"who": asking}
				}
				return next(ctx, jobs)
			}
		},
		Handle: func(next durable.Handler) durable.Handler {
			return func(ctx context.Context, a *durable.Attempt) error {
				err := next(ctx, a)
				fmt.Printf("%s, for %s: %v\n", a.Job.Kind, a.Job.Meta["who"], err)
				return err
			}
		},
	}
	q, clock := open(durable.WithMiddleware(who))
	defer q.Close()
	q.Handle("mail", func(context.Context, *durable.Attempt) error { return nil })
	go q.Run(ctx)

	_, err := q.Add(ctx, durable.Job{Kind: "mail"})
	check(err)
	check(clock.Advance(ctx, 0))
	// Output: mail, for ann: <nil>
}
