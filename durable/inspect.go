package durable

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker"
)

// WorkerInfo describes a living worker, or a dead one whose jobs were not taken over yet.
type WorkerInfo struct {
	Name  string
	Until time.Time // The end of its lease, unless renewed; a worker whose lease has ended is dead.
	Jobs  int64     // The number of jobs that it has claimed.

	// Since is about when it claimed the oldest of these. If the engine does not store
	// that, Since is when the job was due, but not before Began. Zero without jobs.
	Since time.Time

	// Label is the name of WithWorkerName, or empty. Host and Process are of the process
	// that called Run, and Began is the time of that call.
	Label   string
	Host    string
	Process int
	Began   time.Time

	// Kinds are the kinds with a handler in the worker, sorted: the first 100 of them.
	// AllKinds is their number. For a dead worker AllKinds may be 0, and Kinds empty.
	Kinds    []string
	AllKinds int
}

// maxPage is how many jobs List returns at most.
const maxPage = 1000

// List returns up to n jobs that are kept and selected, 1 to 1000 of them; other numbers
// are [ErrInvalid]. Running jobs come first, then waiting, dead, canceled and done ones; within
// each state, the longest due first. Pass "" as after for the first page, and then the next of the
// call before, which is "" after the last page. The pages are no snapshot: a job that changes meanwhile may be on two of
// them, or on none.
//
// The cost depends on the engine. PostgreSQL reads an index in order up to the page; for
// dead jobs it passes all waiting jobs of the kind. JetStream reads the buckets at the
// time of the page, an hour if that is far off; for dead jobs it reads all dead jobs.
func (q *Queue) List(ctx context.Context, f Filter, after string, n int) (infos []Info, next string, err error) {
	if q.closed.Err() != nil {
		return nil, "", ErrClosed
	}
	if n < 1 || n > maxPage {
		return nil, "", fmt.Errorf("%w: List: n is %d, not from 1 to %d", ErrInvalid, n, maxPage)
	}
	order := []State{Running, Waiting, Dead, Canceled, Done}
	at, from, err := parseCursor(after, len(order))
	if err != nil {
		return nil, "", err
	}
	if !isPossible(f) {
		return nil, "", nil
	}
	for ; at < len(order); at, from = at+1, (driver.Cursor{}) {
		if f.State != 0 && f.State != order[at] {
			continue
		}
		one := f
		one.State = order[at]
		page, cursor, err := q.engine.Page(ctx, one, from, n-len(infos))
		if err != nil {
			return nil, "", err
		}
		infos = append(infos, page...)
		switch {
		case !cursor.IsZero():
			return infos, fmt.Sprintf("%d.%s.%s", at, strconv.FormatInt(cursor.At.UnixMicro(), 36), cursor.Ref), nil
		case len(infos) == n && f.State == 0 && at+1 < len(order):
			return infos, fmt.Sprint(at + 1), nil
		}
	}
	return infos, "", nil
}

// parseCursor reads what List has returned: which state it had come to, and how far in that.
func parseCursor(text string, states int) (at int, m driver.Cursor, err error) {
	if text == "" {
		return 0, m, nil
	}
	state, rest, some := strings.Cut(text, ".")
	at, err = strconv.Atoi(state)
	if err == nil && some {
		var micros int64
		moment, ref, _ := strings.Cut(rest, ".")
		micros, err = strconv.ParseInt(moment, 36, 64)
		m = driver.Cursor{At: time.UnixMicro(micros), Ref: Ref(ref)}
	}
	if err != nil || at < 0 || at >= states {
		return 0, m, fmt.Errorf("%w: List: after is %.200q, which no List returned", ErrInvalid, text)
	}
	return at, m, nil
}

// Backlog describes the waiting jobs. The engine reads due jobs: JetStream reads 20,000
// records, counts the rest unread, and divides these among kinds as the records;
// PostgreSQL reads up to 10,000 rows of each kind, and up to 100,000 for the total.
func (q *Queue) Backlog(ctx context.Context) (Backlog, error) {
	if q.closed.Err() != nil {
		return Backlog{}, ErrClosed
	}
	return q.engine.Backlog(ctx)
}

// Workers returns the workers of all processes, in the order of their names. The engine
// reads all jobs that are due or run.
func (q *Queue) Workers(ctx context.Context) ([]WorkerInfo, error) {
	if q.closed.Err() != nil {
		return nil, ErrClosed
	}
	found, err := q.engine.Workers(ctx)
	var all []WorkerInfo
	for _, w := range found {
		all = append(all, workerOf(w))
	}
	return all, err
}

func workerOf(w driver.WorkerInfo) WorkerInfo {
	name := worker.ReadName(w.Name)
	i := WorkerInfo{
		Name: w.Name, Until: w.Until, Jobs: w.Jobs, Since: w.Since,
		Label: name.Label, Host: name.Host, Process: name.Process, Began: name.Began,
		Kinds: slices.Clone(w.Kinds[:min(len(w.Kinds), driver.ShownKinds)]), AllKinds: w.AllKinds,
	}
	if !i.Since.IsZero() && i.Since.Before(i.Began) {
		i.Since = i.Began // no worker has a job before it is there
	}
	return i
}
