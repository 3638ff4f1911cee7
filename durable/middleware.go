package durable

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// AddFunc adds jobs, as [Queue.AddMany] does; [Queue.Add] passes one job. It returns one
// Ref for each job, also with an error: the Ref of a job that was not stored is empty.
type AddFunc func(ctx context.Context, jobs []Job) ([]Ref, error)

// Middleware wraps the functions that add jobs, the handlers, or both: for traces, logs,
// metrics, a check, a field of all jobs, or encrypted payloads. One of the two may be
// nil.
type Middleware struct {
	// Open calls Add once. Queue.Add, AddMany and RunNow call the returned function, from
	// several goroutines at once. It passes jobs on to next, or returns an error. The jobs and
	// their Meta are copies that it may change; payloads are the caller's. The job of RunNow
	// is as SetSchedule got it.
	//
	// It is not called by SetSchedule and for occurrences, or for jobs that an engine adds
	// itself, such as by AddTx of package postgres. An engine knows no Queue. A schedule is
	// compared with the stored one at each start: if a middleware made another job of it each
	// time, as one that encrypts does, each start would change the schedule. So change such
	// jobs before you pass them on.
	//
	// Queue.Add panics if the function returns another number of Refs than jobs without
	// an error.
	Add func(next AddFunc) AddFunc

	// Queue.Handle calls Handle once for each kind. Each attempt calls the returned
	// function in place of the handler. Its result counts as the handler's, and so does a
	// panic or an end of its goroutine. So it must wrap the handler's errors for
	// errors.Is and As, or Discard, RetryAfter and Snooze have no effect. Its context
	// ends as the handler's does. It is not called for expired jobs, or for jobs whose
	// last attempt never ended.
	Handle func(next Handler) Handler
}

// wrapAdd puts middleware around the function that adds jobs.
func wrapAdd(all []Middleware, add AddFunc) AddFunc {
	wrapped := false
	for _, m := range slices.Backward(all) {
		if m.Add == nil {
			continue
		}
		if add = m.Add(add); add == nil {
			panic("durable: Open: the Add of a Middleware returned nil")
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
				panic(fmt.Sprintf("durable: the Add of a Middleware returned %d Refs for %d jobs", len(refs), len(jobs)))
			}
			refs = make([]Ref, len(jobs))
		}
		return refs, err
	}
}

// wrapHandler puts middleware around the handler of a kind.
func wrapHandler(all []Middleware, kind string, h Handler) Handler {
	for _, m := range slices.Backward(all) {
		if m.Handle == nil {
			continue
		}
		if h = m.Handle(h); h == nil {
			panic(fmt.Sprintf("durable: Handle(%q): the Handle of a Middleware returned nil", kind))
		}
	}
	return h
}
