package durable

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker"
)

// Backlog is what waits in an engine.
type Backlog struct {
	// Waiting is about how many jobs wait in all, also for a time that is far. From 100,000
	// on it may be an estimate, and it may count what ended some seconds ago.
	Waiting int64

	// Kinds are those of which a job is due and waits, the longest due first; at most some
	// hundred of them.
	Kinds []Overdue
}

// Overdue is a kind of which jobs are due and wait.
type Overdue struct {
	Kind    string
	Jobs    int64     // so many; above 10,000 a bound, or about
	Oldest  Ref       // the one that is longest due
	Due     time.Time // of that
	Handled bool      // a worker that lives has a handler for the kind
}

// WorkerInfo is a worker that lives, or that has died and still holds jobs that nobody has
// taken over.
type WorkerInfo struct {
	Name  string
	Until time.Time // when its lease is over, unless it is renewed; has passed: it is dead
	Jobs  int64     // that it has claimed

	// Since is for how long about it has had the one of these that it has had for longest: since
	// the claim, or, where an engine does not keep when that was, since the job was due, and no
	// longer than since Began. Zero: it has none.
	Since time.Time

	// Label is what WithWorkerName has set; "": nothing. Host, Process and Began are of the
	// process that called Run, and when. They are empty for workers of releases that did not
	// say so.
	Label   string
	Host    string
	Process int
	Began   time.Time

	// Kinds are those that the worker has handlers for, sorted: the first 100 of them.
	// AllKinds is how many there are. A worker of an earlier release, or one that is dead, may
	// have 0, or no Kinds beside their number.
	Kinds    []string
	AllKinds int
}

// maxPage is how many jobs List returns at most.
const maxPage = 1000

// List returns up to n jobs that are kept and selected, 1 to 1000 of them; other numbers are
// [ErrInvalid]. Those that run come first, then those that wait, then those that are dead;
// within these, those that have been due for longest. After is "" for the first page, and
// else the text that the call before has returned; that is "" when there are no more. The
// pages are no snapshot: a job that changes meanwhile may be on two of them, or on none.
//
// The cost depends on the engine. PostgreSQL reads as far as it has to in the order of an
// index, for dead ones past all of the kind that wait. JetStream reads the buckets of the
// time where the page is, the hour if that is far, and for dead ones all that are dead.
func (q *Queue) List(ctx context.Context, f Filter, after string, n int) (infos []Info, next string, err error) {
	if q.closed.Err() != nil {
		return nil, "", ErrClosed
	}
	if n < 1 || n > maxPage {
		return nil, "", fmt.Errorf("%w: List of %d jobs, not 1 to %d", ErrInvalid, n, maxPage)
	}
	order := []State{Running, Waiting, Dead}
	at, mark, err := parseCursor(after, len(order))
	if err != nil {
		return nil, "", err
	}
	if !f.possible() {
		return nil, "", nil
	}
	for ; at < len(order); at, mark = at+1, (driver.Cursor{}) {
		if f.State != 0 && f.State != order[at] {
			continue
		}
		one := driver.Filter(f)
		one.State = order[at]
		page, m, err := q.engine.Page(ctx, one, mark, n-len(infos))
		if err != nil {
			return nil, "", err
		}
		for _, i := range page {
			infos = append(infos, infoOf(i))
		}
		switch {
		case !m.IsZero():
			return infos, fmt.Sprintf("%d.%s.%s", at, strconv.FormatInt(m.At.UnixMicro(), 36), m.Ref), nil
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
		return 0, m, fmt.Errorf("%w: List after %.200q, which no call has returned", ErrInvalid, text)
	}
	return at, m, nil
}

// Backlog returns what waits. It asks the engine, which looks at what is due: in JetStream
// 20,000 records, the rest are counted unseen, and each kind has the share of them that it has of
// these; in PostgreSQL up to 10,000 rows of each kind, and up to 100,000 for the number in all.
func (q *Queue) Backlog(ctx context.Context) (Backlog, error) {
	if q.closed.Err() != nil {
		return Backlog{}, ErrClosed
	}
	b, err := q.engine.Backlog(ctx)
	return backlogOf(b), err
}

func backlogOf(b driver.Backlog) Backlog {
	all := Backlog{Waiting: b.Waiting}
	for _, o := range b.Kinds {
		all.Kinds = append(all.Kinds, Overdue(o))
	}
	return all
}

// Unhandled is a kind of which a job is due, and no worker has a handler.
type Unhandled struct {
	Kind   string
	Oldest Ref       // the job of it that is longest due
	Due    time.Time // of that
}

// Unhandled returns the kinds of which a job is due and no worker has a handler, in whatever
// process, the longest due first; not all of them if they are many. It asks the engine, which
// may be some seconds behind, and may look at each kind that there is. A process in which Run
// is under way has it in its [Stats].
func (q *Queue) Unhandled(ctx context.Context) ([]Unhandled, error) {
	if q.closed.Err() != nil {
		return nil, ErrClosed
	}
	found, err := q.engine.Unhandled(ctx)
	return unhandledOf(found), err
}

func unhandledOf(found []driver.Unhandled) []Unhandled {
	var all []Unhandled
	for _, u := range found {
		all = append(all, Unhandled(u))
	}
	return all
}

// Workers returns the workers of all processes, in the order of their names. The engine looks
// at all that is due or runs.
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
		Kinds: w.Kinds[:min(len(w.Kinds), driver.ShownKinds)], AllKinds: w.AllKinds,
	}
	if !i.Since.IsZero() && i.Since.Before(i.Began) {
		i.Since = i.Began // no worker has a job before it is there
	}
	return i
}
