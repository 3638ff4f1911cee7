package durable

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The largest that a [Job] may be.
const (
	MaxPayload = 256 << 10 // bytes
	MaxKind    = 128       // bytes
	MaxKey     = 256       // bytes
	MaxLane    = 128       // bytes
	MaxMeta    = 4 << 10   // bytes of all names and values of Meta together

	defaultMaxAttempts = 25
)

// Job is what is to be done, and when. The zero values of all fields but Kind are useful.
type Job struct {
	Kind    string // says which handler runs it; printable, 1 to 128 bytes
	Payload []byte // for the handler; at most 256 KiB

	// At is when it is due, After how long from now, by the engine's clock; at most one
	// of them is set. A time that has passed, or a delay that is not positive, is due
	// now. A time beyond the year 9999 is refused.
	At    time.Time
	After time.Duration

	// Key, if not empty, is held by one job at a time: from Add until that job is done,
	// canceled or dead. Add of another one with the key returns [ErrExists]. At most 256
	// bytes, printable.
	Key string

	// MaxAttempts is how many attempts there are; the last failure makes it dead. 0 is 25.
	// An attempt whose process died before anybody knew that it had begun does not count,
	// but for the last one.
	MaxAttempts int

	// Lane is whom the job belongs to, such as a customer: the jobs of one lane can be
	// told from those of others. At most 128 bytes, printable.
	Lane string

	// Priority says which job begins first of those that are due; see [Priority].
	Priority Priority

	// Meta is kept with the job, such as the context of a trace, or tags to search for
	// with a [Filter]. Names are printable, 1 to 128 bytes; values are UTF-8 without NUL;
	// all together at most 4 KiB.
	Meta map[string]string

	// Timeout, if positive, is how long an attempt may take: then its handler's context
	// ends with [ErrTimeout] as cause. The handler's result counts, as always. Whole
	// microseconds, rounded up.
	Timeout time.Duration

	// Expires, if not zero, is until when an attempt may begin, by the engine's clock. No
	// attempt begins from then on: the job is dead, with [ErrExpired] as its error. That is
	// written down when its turn comes, so it may be listed as waiting for longer. It has to be
	// after the time when the job is due. To redrive a job takes its Expires away.
	Expires time.Time
}

// Priority is one of three classes. Of the jobs that are due and that a worker has
// fetched, those of a higher class begin first, and within a class those that have been
// due for longest. So that no class starves, one begin in eight is of a lower class, if
// such a job is due, and one in 64 of the lowest.
//
// A worker has fetched up to 65,536 jobs, those that have been due for longest. While more
// than that are overdue, their class does not matter.
type Priority int8

// The classes.
const (
	Low    Priority = -1
	Normal Priority = 0
	High   Priority = 1
)

func (p Priority) String() string {
	switch p {
	case Low:
		return "low"
	case Normal:
		return "normal"
	case High:
		return "high"
	}
	return fmt.Sprintf("Priority(%d)", int8(p))
}

// Ref is the engine's address of a job. It stays the same over attempts, reschedules and
// restarts. So a handler can tell by it whether it has done a job before. It is text that
// may be stored; only the engine knows what is in it.
type Ref string

// State is what a job that is kept is doing.
type State int

// The states of a job. One that is done or canceled is kept no longer.
const (
	Waiting State = iota + 1 // for its time, for its next attempt, or for a worker
	Running                  // a worker has claimed it
	Dead                     // its last attempt failed, or its handler discarded it
)

func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Running:
		return "running"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Info is what an engine knows of a job.
type Info struct {
	Ref       Ref
	Job       Job // At is when it was first due; After is zero
	State     State
	Attempt   int       // attempts that have begun, and the one that is claimed
	Due       time.Time // of the next attempt, or of the one that runs, or of the last one
	LastError string    // of the last attempt that failed; at most 4 KiB

	// Errors are those of the last ten attempts that failed, the newest last. An attempt whose
	// process died is among them if it was the last one, and so is that a job has expired. They
	// stay when a job is redriven. A job that failed before engines kept them has them from its
	// next failure on.
	Errors []Failure
}

// Failure is an attempt that has failed.
type Failure struct {
	// At is when it ended, by the engine's clock; zero if that is not known, since it failed
	// before engines kept this.
	At time.Time `json:"at,omitzero"`

	Attempt int    `json:"attempt,omitempty"` // its number, from 1; 0: it is not known, or none began
	Error   string `json:"error"`             // at most 512 bytes, without the stack of a panic
}

// Filter selects jobs. The zero Filter selects all that are kept.
type Filter struct {
	State State  // 0: any
	Kind  string // "": any
	Lane  string // "": any

	// Meta selects jobs that have all of these names with these values. In PostgreSQL there
	// is an index for that; other engines look at each job.
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

// possible reports whether there can be a job that the Filter selects. A database refuses texts
// that no job has.
func (f Filter) possible() bool {
	return printable(f.Kind) && printable(f.Lane) && checkMeta(f.Meta) == nil
}

// farthest is the first moment beyond the year 9999, which many encodings cannot hold.
var farthest = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// check returns what is wrong with the job, an error that wraps ErrInvalid.
func (j *Job) check(due time.Time) error {
	switch {
	case j.Kind == "":
		return fmt.Errorf("%w: the kind is empty", ErrInvalid)
	case len(j.Kind) > MaxKind:
		return fmt.Errorf("%w: the kind has %d bytes, more than %d", ErrInvalid, len(j.Kind), MaxKind)
	case !printable(j.Kind):
		return fmt.Errorf("%w: the kind %q is not printable", ErrInvalid, j.Kind)
	case len(j.Key) > MaxKey:
		return fmt.Errorf("%w: the key has %d bytes, more than %d", ErrInvalid, len(j.Key), MaxKey)
	case !printable(j.Key):
		return fmt.Errorf("%w: the key %q is not printable", ErrInvalid, j.Key)
	case len(j.Payload) > MaxPayload:
		return fmt.Errorf("%w: the payload has %d bytes, more than %d", ErrInvalid, len(j.Payload), MaxPayload)
	case j.MaxAttempts < 0:
		return fmt.Errorf("%w: MaxAttempts %d is negative", ErrInvalid, j.MaxAttempts)
	case !j.At.IsZero() && j.After != 0:
		return fmt.Errorf("%w: both At and After are set", ErrInvalid)
	case len(j.Lane) > MaxLane:
		return fmt.Errorf("%w: the lane has %d bytes, more than %d", ErrInvalid, len(j.Lane), MaxLane)
	case !printable(j.Lane):
		return fmt.Errorf("%w: the lane %q is not printable", ErrInvalid, j.Lane)
	case j.Priority < Low || j.Priority > High:
		return fmt.Errorf("%w: there is no priority %d", ErrInvalid, j.Priority)
	case j.Timeout < 0:
		return fmt.Errorf("%w: Timeout %v is negative", ErrInvalid, j.Timeout)
	case !j.Expires.IsZero() && !j.Expires.After(due):
		return fmt.Errorf("%w: it expires at %v, and is due at %v", ErrInvalid, j.Expires, due)
	}
	return cmp.Or(checkMeta(j.Meta), checkTime(due), checkTime(j.Expires))
}

func checkMeta(meta map[string]string) error {
	size := 0
	for name, value := range meta {
		size += len(name) + len(value)
		switch {
		case name == "" || len(name) > MaxKind || !printable(name):
			return fmt.Errorf("%w: the name %.200q in Meta is not printable, of 1 to %d bytes", ErrInvalid, name, MaxKind)
		case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return fmt.Errorf("%w: the value of %q in Meta is not UTF-8 without NUL", ErrInvalid, name)
		}
	}
	if size > MaxMeta {
		return fmt.Errorf("%w: Meta has %d bytes, more than %d", ErrInvalid, size, MaxMeta)
	}
	return nil
}

func checkTime(due time.Time) error {
	if !due.Before(farthest) {
		return fmt.Errorf("%w: the time %v is beyond the year 9999", ErrInvalid, due)
	}
	return nil
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
