package crashtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/crashtest"
)

// payments stands for a service that makes one charge for each idempotency key.
type payments struct{ charges map[string]int }

func (p *payments) charge(key string, cents int) { p.charges[key] = cents }

// serve is what each process of the program does when it starts.
func serve(ctx context.Context, q *durable.Queue, p *payments) error {
	q.Handle("renew", func(ctx context.Context, a *durable.Attempt) error {
		// A second attempt adds a second job. Both have the same day.
		_, err := q.Add(ctx, durable.Job{Kind: "charge", Payload: []byte(a.Occurrence.Format(time.DateOnly))})
		return err
	})
	q.Handle("charge", func(_ context.Context, a *durable.Attempt) error {
		if a.Number == 1 {
			return durable.RetryAfter(time.Hour, errors.New("no connection"))
		}
		p.charge("renewal of "+string(a.Job.Payload), 990) // with a.Ref for the key, a crash charges twice
		return nil
	})
	return q.SetSchedule(ctx, "renewals", "0 8 * * *", durable.Job{Kind: "renew"})
}

// threeDays is a scenario.
func threeDays(t *testing.T, w *crashtest.World) any {
	p := &payments{charges: map[string]int{}} // new for each run
	w.Start(func(ctx context.Context, q *durable.Queue) error { return serve(ctx, q, p) })
	w.Advance(72 * time.Hour)
	return fmt.Sprintf("%d charges", len(p.charges))
}

// Three days of a program that charges for a renewal each morning, crashed everywhere.
func ExampleRun() {
	TestRenewals := func(t *testing.T) { crashtest.Run(t, threeDays) }
	_ = TestRenewals // go test calls it
}
