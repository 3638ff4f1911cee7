package durable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// Why answers with the first thing that keeps a job from running.
func ExampleQueue_Why() {
	q, clock := open()
	defer q.Close()
	ref, err := q.Add(ctx, durable.Job{Kind: "mail", After: time.Hour})
	check(err)
	why := func() {
		reason, err := q.Why(ctx, ref)
		check(err)
		fmt.Printf("%s: %s\n", reason.Cause, reason.Text)
	}
	why()
	check(q.Pause(ctx, durable.Pausable{Kind: "mail"}))
	clock.Set(clock.Now().Add(2 * time.Hour))
	why()
	check(q.Resume(ctx, durable.Pausable{Kind: "mail"}))
	why()
	_, err = q.Cancel(ctx, ref)
	check(err)
	_, err = q.Why(ctx, ref)
	fmt.Println(errors.Is(err, durable.ErrNotFound))
	// Output:
	// not due: It is due 2026-03-01T10:00:00Z (in 1h0m0s).
	// paused: A pause of kind "mail" covers it. Resume ends it.
	// no worker: No living worker has a handler for "mail". The living workers: none.
	// true
}

// A process that a clock starts, such as a CronJob, runs the jobs that are due, and ends.
func ExampleQueue_RunUntilIdle() {
	q, _ := open()
	defer q.Close()
	q.Handle("mail", func(_ context.Context, a *durable.Attempt) error {
		if string(a.Job.Payload) == "nobody" {
			return durable.Discard(errors.New("there is no such customer"))
		}
		return nil
	})
	_, err := q.AddMany(ctx, durable.Job{Kind: "mail", Payload: []byte("ann")}, durable.Job{Kind: "mail", Payload: []byte("nobody")},
		durable.Job{Kind: "mail", After: time.Hour}, durable.Job{Kind: "another program's"})
	check(err)
	ran, err := q.RunUntilIdle(ctx, 0)
	check(err)
	fmt.Printf("%+v\n", ran)
	// Output: {Attempts:2 Done:1 Failed:0 Dead:1}
}

// Await returns when a job has ended, whichever process runs it.
func ExampleQueue_Await() {
	q, _ := open()
	defer q.Close()
	q.Handle("mail", func(_ context.Context, a *durable.Attempt) error {
		if string(a.Job.Payload) == "nobody" {
			return durable.Discard(errors.New("there is no such customer"))
		}
		return nil
	})
	go q.Run(ctx)
	for _, to := range []string{"ann", "nobody"} {
		ref, err := q.Add(ctx, durable.Job{Kind: "mail", Payload: []byte(to)})
		check(err)
		switch info, err := q.Await(ctx, ref); {
		case errors.Is(err, durable.ErrEnded):
			fmt.Println("done, canceled or replaced: it is not kept")
		case err == nil:
			fmt.Printf("%v: %s\n", info.State, info.LastError)
		default: // ctx has ended, say
			check(err)
		}
	}
	// Output:
	// done, canceled or replaced: it is not kept
	// dead: there is no such customer
}
