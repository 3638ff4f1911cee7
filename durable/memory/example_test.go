package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// Three days pass in some hundred microseconds: the reminder fails once, and is tried again
// an hour later.
func ExampleClock_Advance() {
	ctx := context.Background()
	clock := memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	q, err := durable.Open(ctx, memory.New(clock).Open())
	if err != nil {
		panic(err)
	}
	defer q.Close()
	q.Handle("remind", func(_ context.Context, a *durable.Attempt) error {
		if a.Number == 1 {
			return durable.RetryAfter(time.Hour, fmt.Errorf("no connection"))
		}
		fmt.Printf("%v: %s\n", clock.Now().Format(time.DateTime), a.Job.Payload)
		return nil
	})
	go q.Run(ctx)

	if _, err := q.Add(ctx, durable.Job{Kind: "remind", After: 71 * time.Hour, Payload: []byte("pay the bill")}); err != nil {
		panic(err)
	}
	if err := clock.Advance(ctx, 72*time.Hour); err != nil {
		panic(err)
	}
	// Output: 2026-03-04 09:00:00: pay the bill
}
