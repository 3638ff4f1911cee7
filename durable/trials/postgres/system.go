package main

import (
	"context"
	"encoding/binary"
	"time"
)

// system is what is measured, and how it is set up.
type system struct {
	name, note string
	open       func(ctx context.Context, dsn string) (queue, error)
	twin       bool // it adds jobs as the one before does
}

// queue is a system on a database.
type queue interface {
	// add stores jobs in one call.
	add(ctx context.Context, jobs []job) error
	// work runs jobs until ctx ends, and then until their ends are written down. It calls
	// ran for each, on any goroutine.
	work(ctx context.Context, ran func(job)) error
	close()
}

var systems = []system{
	{name: "tickwheel", note: "durable/postgres, 1000 handlers at once, all else by default; callers at one time share a commit", open: openTickwheel},
	{name: "River", note: "v0.51.1, 2000 workers, fetches at most every 2 ms and polls every 5 ms, which is its own benchmark's setting with a shorter poll; its scheduler runs every 5 s, which cannot be set", open: openRiver(riverTuned)},
	{name: "River, defaults", note: "100 workers, as its documentation has it; fetches at most every 100 ms, polls every second", open: openRiver(riverDefault), twin: true},
	{name: "poller", note: "select for update skip locked, 1000 rows at most; runs and deletes them in that transaction; again after 200 ms, or at once after a full batch", open: openPoller},
}

// job is due at a time, which was so long ahead when it was added.
type job struct {
	due   time.Time
	ahead time.Duration
}

// payload is 100 bytes that say which job it is.
func (j job) payload() []byte {
	b := make([]byte, 100)
	binary.BigEndian.PutUint64(b, uint64(j.due.UnixNano()))
	binary.BigEndian.PutUint64(b[8:], uint64(j.ahead))
	return b
}

func jobOf(payload []byte) job {
	return job{
		due:   time.Unix(0, int64(binary.BigEndian.Uint64(payload))),
		ahead: time.Duration(binary.BigEndian.Uint64(payload[8:])),
	}
}
