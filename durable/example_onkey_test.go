package durable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// A document is indexed 10 s after its last change, and at most a minute after its first. Changes
// that come while it is indexed are indexed after that.
func ExampleOnKey() {
	q, clock := open()
	defer q.Close()
	index := func(version string) {
		var before durable.Ref
		_, err := q.Add(ctx, durable.Job{
			Kind: "index", Key: "index document 7", OnKey: durable.Later, After: 10 * time.Second, MaxWait: time.Minute,
			FreeWhenBegun: true, Lane: "document 7", Payload: []byte(version), Found: &before,
		})
		check(err)
		fmt.Printf("%s: version %s, another waited: %t\n", clock.Now().Format(at), version, before != "")
	}
	q.Handle("index", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("%s: index version %s\n", clock.Now().Format(at), a.Job.Payload)
		return nil
	})
	check(q.SetLimit(ctx, "one of a document", durable.Limit{Kind: "index", PerLane: true, Running: 1}))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go q.Run(ctx)

	index("1")
	check(clock.Advance(ctx, 5*time.Second))
	index("2")
	check(clock.Advance(ctx, time.Minute))
	index("3")
	check(clock.Advance(ctx, time.Minute))
	// Output:
	// Mar 1 09:00:00: version 1, another waited: false
	// Mar 1 09:00:05: version 2, another waited: true
	// Mar 1 09:00:15: index version 2
	// Mar 1 09:01:05: version 3, another waited: false
	// Mar 1 09:01:15: index version 3
}

// An order waits for its payment, for a day at most.
func ExampleQueue_Signal() {
	q, clock := open()
	defer q.Close()
	q.Handle("order", func(_ context.Context, a *durable.Attempt) error {
		if !a.Signaled {
			fmt.Printf("%s: cancel order %s\n", clock.Now().Format(at), a.Job.Payload)
			return nil
		}
		fmt.Printf("%s: send order %s, paid by %s\n", clock.Now().Format(at), a.Job.Payload, a.Signal)
		return nil
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go q.Run(ctx)

	for _, id := range []string{"7", "8"} {
		_, err := q.Add(ctx, durable.Job{Kind: "order", Key: "order " + id, Signals: true, After: 24 * time.Hour, Payload: []byte(id)})
		check(err)
	}
	check(clock.Advance(ctx, 2*time.Hour))
	i, err := q.Lookup(ctx, "order 7")
	check(err)
	fmt.Println("order 7 waits until", i.Due.Format(at))
	paid, err := q.Signal(ctx, "order 7", []byte("card"))
	check(err)
	check(clock.Advance(ctx, 24*time.Hour))
	late, err := q.Signal(ctx, "order 8", []byte("card"))
	check(err)
	_, err = q.Lookup(ctx, "order 8")
	fmt.Println(paid, late, errors.Is(err, durable.ErrNotFound))
	// Output:
	// order 7 waits until Mar 2 09:00:00
	// Mar 1 11:00:00: send order 7, paid by card
	// Mar 2 09:00:00: cancel order 8
	// true false true
}
