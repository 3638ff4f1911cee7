// Package page shows queues of durable jobs on the page of package timingwheel/debug:
//
//	h := debug.NewHandler()
//	h.AddQueue("mails", page.Queue(q, page.WithURL("/admin/jobs/")))
//	mux.Handle("/debug/timingwheel/", h)
//
// With [WithURL] its name leads to the queue's own page, that of durable/admin. A program
// that has no wheels of its own needs that page only.
//
// This package stands between two modules. The page is in the core module, which knows no durable
// jobs, and package durable does without a web server.
//
// # Cost
//
// [durable.Queue.Stats] says what this process does with the jobs (held, claimed, running,
// lateness, leases lost). That takes some microseconds, and the page asks for
// it a few times a second while somebody watches. How many jobs wait, run and are dead in
// all comes from [durable.Queue.Count], which reads all of the store. The page asks for
// that while somebody watches only. It then takes at most 2 % of the time, and at most
// ten seconds each: of a store that takes longer to read, the page says how much has been
// counted by then.
package page

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/timingwheel/debug"
)

// Queue returns q as the page asks for it. The queue may be closed before or after: then
// its figures stand still, and the page says that nothing can be counted any more. Queue
// panics on a nil Queue and a nil Option.
func Queue(q *durable.Queue, opts ...Option) debug.Queue {
	if q == nil {
		panic("page: Queue: nil Queue")
	}
	shown := queue{q: q}
	for _, opt := range opts {
		if opt == nil {
			panic("page: Queue: nil Option")
		}
		opt(&shown)
	}
	return shown
}

// Option changes how a queue is shown.
type Option func(*queue)

// WithURL has the queue's name lead to a page of its own: where the handler of durable/admin
// is mounted, with the slash at the end. The default "" leads nowhere.
func WithURL(url string) Option { return func(q *queue) { q.url = url } }

type queue struct {
	q   *durable.Queue
	url string
}

// URL is for package debug.
func (q queue) URL() string { return q.url }

// Stats implements debug.Queue.
func (q queue) Stats() debug.QueueStats {
	s := q.q.Stats()
	return debug.QueueStats{
		Held: s.Held, Claimed: s.Claimed, Running: s.Running,
		Attempts: s.Attempts, Done: s.Done, Failed: s.Failed, Dead: s.Dead, LeaseLost: s.LeaseLost,
		Unhandled: unhandled(s.Unhandled), Lateness: s.Lateness,
	}
}

// unhandled counts by this process's clock.
func unhandled(of []durable.Unhandled) (all []debug.UnhandledKind) {
	for _, u := range of {
		all = append(all, debug.UnhandledKind{Kind: u.Kind, Overdue: max(0, time.Since(u.Due))})
	}
	return all
}

// Count implements debug.Queue.
func (q queue) Count(ctx context.Context) (debug.QueueCounts, error) {
	c, err := q.q.Count(ctx)
	return debug.QueueCounts(c), err
}
