package enginetest

import (
	"context"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// wrapped is an engine whose workers are wrapped.
type wrapped struct {
	driver.Engine
	wrap func(driver.Worker) driver.Worker
}

func (e wrapped) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	if err != nil {
		return nil, err
	}
	return e.wrap(w), nil
}

// guarded is a worker whose calls, except Fetch, go through guard. If guard returns an error, it has
// not made the call.
type guarded struct {
	driver.Worker
	guard func(call func() error) error
}

func (w guarded) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	results := slices.Repeat([]driver.ClaimResult{{After: time.Second}}, len(held))
	w.guard(func() error { results = w.Worker.Claim(ctx, held); return nil })
	return results
}

func (w guarded) Finish(ctx context.Context, outs []driver.Completion) (errs []error) {
	if err := w.guard(func() error { errs = w.Worker.Finish(ctx, outs); return nil }); err != nil {
		return slices.Repeat([]error{err}, len(outs))
	}
	return errs
}

func (w guarded) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	return w.guard(func() error { return w.Worker.Release(ctx, held, after) })
}

func (w guarded) Heartbeat(ctx context.Context) error {
	return w.guard(func() error { return w.Worker.Heartbeat(ctx) })
}

func (w guarded) Close(ctx context.Context) error {
	return w.guard(func() error { return w.Worker.Close(ctx) })
}
