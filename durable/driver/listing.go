package driver

import (
	"strings"
	"time"
)

// Filter selects jobs. The zero Filter selects all that are kept.
type Filter struct {
	State State  // 0: any
	Kind  string // "": any
	Lane  string // "": any

	// Meta selects jobs that have all of these names with these values. PostgreSQL has an
	// index for that; other engines read each job.
	Meta map[string]string
}

// Match reports whether the Filter selects the job.
func (f Filter) Match(i Info) bool {
	for name, value := range f.Meta {
		if v, ok := i.Job.Meta[name]; !ok || v != value {
			return false
		}
	}
	return (f.State == 0 || f.State == i.State) && (f.Kind == "" || f.Kind == i.Job.Kind) &&
		(f.Lane == "" || f.Lane == i.Job.Lane)
}

// Progress says whether a job has ended.
type Progress struct {
	// State is Waiting or Running for a job that has not ended, and 0 for one that has ended and is not
	// kept. Any other state, such as Dead, means that the job has ended and may be kept: Get returns
	// how it ended, or ErrNotFound.
	State State

	// Due is about the time of the next attempt of a waiting job: never later than that, and at most
	// some seconds earlier. It has no meaning in other states.
	Due time.Time
}

// Cursor is a position in a listing by [Engine].Page: after one job and before the next.
type Cursor struct {
	At  time.Time // The sort key, usually Due.
	Ref Ref       // The second sort key, for jobs with the same At.
}

// IsZero reports whether c is the beginning, or, as a result of Page, the end.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// Compare returns -1 if c comes before o, 0 if they are equal, and 1 otherwise.
func (c Cursor) Compare(o Cursor) int {
	if n := c.At.Compare(o.At); n != 0 {
		return n
	}
	return strings.Compare(string(c.Ref), string(o.Ref))
}

// Backlog describes the waiting jobs of an engine.
type Backlog struct {
	// Waiting is about the number of all waiting jobs, also those due far in the future.
	// From 100,000 on it may be an estimate. It may count jobs that ended some seconds
	// ago.
	Waiting int64

	// Kinds are the kinds with a job that is due and waits, the longest due first. It has
	// about a hundred kinds at most.
	Kinds []Overdue
}

// Overdue is a kind with jobs that are due and wait.
type Overdue struct {
	Kind    string
	Jobs    int64     // The number of jobs; above 10,000 a bound, or an estimate.
	Oldest  Ref       // The job that is longest due.
	Due     time.Time // Its due time.
	Handled bool      // A living worker has a handler for the kind.
}

// WorkerInfo describes a living worker, or a dead one whose jobs were not taken over yet.
type WorkerInfo struct {
	Name  string
	Until time.Time // The end of its lease, unless renewed; a worker whose lease has ended is dead.
	Jobs  int64     // The number of jobs that it has claimed.

	// Since is about when it claimed the oldest of these. If the engine does not store
	// that, Since is when the job was due. Zero without jobs.
	Since time.Time

	// Kinds are the kinds with a handler in the worker, sorted: the first ShownKinds of
	// them. AllKinds is their number. A dead worker may have neither.
	Kinds    []string
	AllKinds int
}

// ShownKinds is the number of kinds of a worker that are listed. An engine may store no
// more.
const ShownKinds = 100

// Unhandled is a kind with a due job, for which no worker has a handler.
type Unhandled struct {
	Kind   string
	Oldest Ref       // The job that is longest due.
	Due    time.Time // Its due time.
}
