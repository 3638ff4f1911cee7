package durable

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// What a [Job] may be at most.
const (
	MaxPayload = 256 << 10 // bytes
	MaxKind    = 128       // bytes
	MaxKey     = 256       // bytes

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
	LastError string    // of the last attempt that failed
}

// Filter selects jobs. The zero Filter selects all that are kept.
type Filter struct {
	State State  // 0: any
	Kind  string // "": any
}

// Match reports whether the Filter selects the job.
func (f Filter) Match(i Info) bool {
	return (f.State == 0 || f.State == i.State) && (f.Kind == "" || f.Kind == i.Job.Kind)
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
	}
	return checkTime(due)
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
