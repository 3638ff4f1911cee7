package driver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// strict is an engine that accepts no jobs without a lane. All other methods are those of
// the engine that it embeds.
type strict struct{ driver.Engine }

func (s strict) Insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	for _, rec := range recs {
		if rec.Lane == "" {
			errs := make([]error, len(recs))
			for i := range errs {
				errs[i] = fmt.Errorf("%w: a job has no lane", driver.ErrInvalid)
			}
			return make([]driver.Ref, len(recs)), errs
		}
	}
	return s.Engine.Insert(ctx, recs)
}

// Manual passes on the clock of the engine in memory, see [driver.Engine].
func (s strict) Manual() func() time.Time {
	if m, ok := s.Engine.(interface{ Manual() func() time.Time }); ok {
		return m.Manual()
	}
	return nil
}

// An engine may wrap another one.
func ExampleEngine() {
	ctx := context.Background()
	q, err := durable.Open(ctx, strict{memory.New(nil).Open()})
	if err != nil {
		panic(err)
	}
	defer q.Close()
	_, err = q.Add(ctx, durable.Job{Kind: "mail", Lane: "ann"})
	fmt.Println(err)
	_, err = q.Add(ctx, durable.Job{Kind: "mail"})
	fmt.Println(errors.Is(err, durable.ErrInvalid))
	// Output:
	// <nil>
	// true
}
