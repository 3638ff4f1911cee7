package driver

import (
	"strings"
	"time"
)

// Cursor is a place in a listing by [Engine].Page: after one job and before the next.
type Cursor struct {
	At  time.Time // by this jobs are in order; for most it is Due
	Ref Ref       // and those of one At by this
}

// IsZero reports whether it is the beginning, or, where Page returns it, the end.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// Compare returns -1 if c comes before o, 0 if they are the same, and 1 else.
func (c Cursor) Compare(o Cursor) int {
	if n := c.At.Compare(o.At); n != 0 {
		return n
	}
	return strings.Compare(string(c.Ref), string(o.Ref))
}

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
	// the claim, or, where an engine does not keep when that was, since the job was due. Zero: it
	// has none.
	Since time.Time

	// Kinds are those that the worker has handlers for, sorted: the first ShownKinds of them.
	// AllKinds is how many there are. A dead worker may have neither.
	Kinds    []string
	AllKinds int
}

// ShownKinds is how many kinds of a worker are listed. An engine may store no more.
const ShownKinds = 100
