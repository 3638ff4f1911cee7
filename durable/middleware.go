package durable

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// AddFunc adds jobs, as [Queue.AddMany] does; of [Queue.Add] it is given one. It returns as
// many Refs as there are jobs, with an error, too: those of what was not stored are empty.
type AddFunc func(ctx context.Context, jobs []Job) ([]Ref, error)

// Handler runs an attempt; see [Queue.Handle].
type Handler func(ctx context.Context, a *Attempt) error

// Middleware goes around what adds jobs, what runs them, or both: for traces, logs, metrics,
// a check, a field that all jobs are to have, or encrypted payloads. One of the two may be nil, and then that
// is left as it is.
type Middleware struct {
	// Add is called once, by Open, and returns what is called by each Add and AddMany, from
	// several goroutines at once. That passes jobs on to next, or returns an error. The jobs
	// and their Meta are copies that it may change; payloads are the caller's. It sees what
	// goes through a Queue: no occurrence of a schedule, no RunNow, and no job that an
	// engine adds by itself, such as AddTx of package postgres.
	//
	// It panics if it returns another number of Refs than there are jobs without an error.
	Add func(next AddFunc) AddFunc

	// Handle is called once for each kind, by Queue.Handle, and returns what is called by each
	// attempt in place of the handler. Its result counts as if the handler had returned it, a panic
	// and an end of its goroutine as well; so it has to pass the handler's errors on, by
	// errors.Is and As at least, or Discard, RetryAfter and Snooze have no effect. The context
	// that it is given ends as the handler's does. A job that has expired, or whose last
	// attempt never ended, comes by no handler, nor by this.
	Handle func(next Handler) Handler
}

// WithMiddleware puts middleware around Add, AddMany and handlers: of several the first is
// the outermost. Given more than once, those of the earlier option are outside of those of
// the later. Open panics on one of which both functions are nil, or whose Add returns nil;
// Handle panics if its Handle does.
func WithMiddleware(m ...Middleware) Option {
	return func(c *config) {
		for i := range m {
			if m[i].Add == nil && m[i].Handle == nil {
				panic(fmt.Sprintf("durable: WithMiddleware: the functions of number %d are both nil", i))
			}
		}
		c.middleware = append(c.middleware, m...)
	}
}

// wrapAdd puts the middleware around what adds jobs.
func (q *Queue) wrapAdd(add AddFunc) AddFunc {
	wrapped := false
	for _, m := range slices.Backward(q.middleware) {
		if m.Add == nil {
			continue
		}
		if add = m.Add(add); add == nil {
			panic("durable: Open: Add of a Middleware has returned nil")
		}
		wrapped = true
	}
	if !wrapped {
		return add
	}
	return func(ctx context.Context, jobs []Job) ([]Ref, error) {
		jobs = slices.Clone(jobs)
		for i := range jobs {
			jobs[i].Meta = maps.Clone(jobs[i].Meta)
		}
		refs, err := add(ctx, jobs)
		if len(refs) != len(jobs) {
			if err == nil {
				panic(fmt.Sprintf("durable: Add of a Middleware has returned %d Refs for %d jobs", len(refs), len(jobs)))
			}
			refs = make([]Ref, len(jobs))
		}
		return refs, err
	}
}

// wrapHandler puts the middleware around a handler.
func (q *Queue) wrapHandler(kind string, h Handler) Handler {
	for _, m := range slices.Backward(q.middleware) {
		if m.Handle == nil {
			continue
		}
		if h = m.Handle(h); h == nil {
			panic(fmt.Sprintf("durable: Handle(%q): Handle of a Middleware has returned nil", kind))
		}
	}
	return h
}
