package driver

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/valid"
)

// Record is a job as an engine stores it.
type Record struct {
	ID string // Letters, digits, - and _. Two records with the same ID and Born are one job.

	// The job, with MaxAttempts of at least 1, and At the time when it was first due. Times
	// are in whole microseconds. After is zero. OnKey, MaxWait and Found are for Insert only,
	// which sets Found, if not nil, to the Ref of the job that waited under the key, or to "".
	Job

	// First is when the wait began that MaxWait bounds: Born of the first job of a chain that was
	// pushed back, or the due time of a retry. Zero: Born.
	First  time.Time
	Signal []byte // The payload of the signal; nil without one.

	Due  time.Time // The time of the next attempt.
	Born time.Time // The time of the call of Add.

	// Version counts the changes of Due, from 0. If there are two Deliveries of one job, that
	// with the higher Version is the newer.
	Version int

	Attempt   int    // Attempts that had begun before.
	Crashes   int    // Claims that never ended, as far as Fetch knows; more than 0 marks a suspect.
	LastError string // The error of the attempt before: UTF-8 without NUL.

	// Errors comes from the Completion of the attempt before; nil for Insert. An engine
	// stores it unchanged.
	Errors []Failure

	// Ending is nil until a job with a Retain ends. Then the engine sets and stores it. Redrive clears it.
	Ending *Ending

	// For an occurrence of a schedule: the schedule's name, and the text from which the
	// Queue makes the next occurrence. A job of RunNow has only the name. An engine stores
	// both unchanged.
	Schedule   string
	Occurrence string
}

// The largest size of the parts of a job.
const (
	MaxPayload = 256 << 10 // In bytes.
	MaxKind    = 128       // In bytes.
	MaxKey     = 256       // In bytes.
	MaxLane    = 128       // In bytes.
	MaxWorker  = 255       // Bytes of the name of a worker.
	MaxMeta    = 4 << 10   // Bytes of all names and values of Meta together.

	defaultMaxAttempts = 25
	maxRetain          = 100 * 365 * 24 * time.Hour
)

// occurrenceKeys is what the keys of occurrences begin with. No other key may.
const occurrenceKeys = "every/"

// OccurrenceKey returns the key of a schedule's occurrences, so that at most one of them
// waits or runs.
func OccurrenceKey(name string) string { return occurrenceKeys + name }

// IsOccurrence reports whether the record is an occurrence of a schedule.
func (r *Record) IsOccurrence() bool {
	return r.Schedule != "" && r.Key == OccurrenceKey(r.Schedule)
}

// Info describes the job of a record. If state is that of an ended job, Ending, if set, replaces it.
func (r *Record) Info(ref Ref, state State) Info {
	i := Info{Ref: ref, Job: r.kept(), State: state, Attempt: r.Attempt, Due: r.Due, LastError: r.LastError, Errors: r.Errors}
	if e := r.Ending; e != nil && state.Ended() {
		i.State, i.Began, i.End, i.Worker = e.State, e.Began, e.Ended, e.Worker
	}
	return i
}

// End sets the Ending, which must not be nil, of a job that is kept after its end. It removes the payload, unless
// the job is dead, so that Redrive needs it, or has RetainPayload.
func (r *Record) End(e *Ending) {
	r.Ending = e
	if e.State != Dead && !r.RetainPayload {
		r.Payload = nil
	}
	if e.State != Dead {
		r.Signal, r.Occurrence = nil, ""
	}
}

// CanceledAt returns the Ending of a job with a Retain that is canceled while it waits.
func CanceledAt(now time.Time) *Ending { return &Ending{State: StateCanceled, Ended: now.UTC()} }

// retainedID ends the ID of a job that was added with a Retain, so that an engine that does not read the record to cancel
// a job reads it for these only.
const retainedID = "-kept"

// SetID sets the ID of a new record. With a Retain it adds a suffix to the ID, for MayRetain.
func (r *Record) SetID(id string) {
	if r.ID = id; r.Retain > 0 {
		r.ID += retainedID
	}
}

// MayRetain reports whether the job of an ID was added with a Retain. If another job has gone into that job (GoInto),
// its Version is not 0, and it may have a Retain although MayRetain is false.
func MayRetain(id string) bool { return strings.HasSuffix(id, retainedID) }

// kept returns the job without the fields that are for Insert only.
func (r *Record) kept() Job {
	j := r.Job
	j.OnKey, j.MaxWait, j.Found = KeyRefuse, 0, nil
	return j
}

// Succeed changes a record before it is stored in place of a job that waits under its key. With
// Later the record is due no later than MaxWait after the FirstBorn of that job. A record with
// Signals takes the job's signal, and is due no later than the job. Other records stay.
func (r *Record) Succeed(was *Record) {
	if r.OnKey == KeyLater {
		r.pushBack(was.FirstBorn())
	}
	if r.Signals && was.Signal != nil {
		r.Signal = was.Signal
		r.Due = earlier(r.Due, later(was.Due, r.Born)) // At stays, and so an engine's Ref
	}
}

// pushBack is Succeed with Later. After the clock was set back, first lies in the future: then
// nothing is known of it but that it has passed.
func (r *Record) pushBack(first time.Time) {
	r.First = earlier(first, r.Born)
	if last := r.First.Add(r.MaxWait); r.MaxWait > 0 && last.Before(r.Due) {
		last = later(last, r.Born)
		r.Due, r.At = last, last
	}
}

// IsDueFor reports whether a waiting job is due for a record of its key, at a time that the engine's
// clock has shown. Then the record, if it is to replace the job, goes into it: see GoInto.
func (r *Record) IsDueFor(next *Record, now time.Time) bool {
	return !r.Due.After(now) || !r.Due.After(next.Born)
}

// GoInto changes a record with Replace or Later, whose key a job has that waits and is due. An engine
// stores it as the next version of that job, instead of another job: it has the job's ID, times and
// signal, and no attempts.
func (r *Record) GoInto(due *Record) {
	r.ID, r.Born, r.First, r.At, r.Due, r.Version = due.ID, due.Born, due.First, due.At, due.Due, due.Version+1
	r.Attempt, r.Crashes = 0, due.Crashes
	if r.Signals {
		r.Signal = due.Signal
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Expired reports whether no attempt may begin any more at a time. A waiting job that has
// expired does not have its key any more.
func (r *Record) Expired(now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// Retried changes a record with a key that waits for another attempt, due at a time: a job that
// pushes it back counts MaxWait from then, if that has passed.
func (r *Record) Retried(at time.Time) {
	if r.Key != "" {
		r.First = at
	}
}

// FirstBorn returns First, or Born if that is zero.
func (r *Record) FirstBorn() time.Time {
	if r.First.IsZero() {
		return r.Born
	}
	return r.First
}

// NewRecord returns the record of a job that is added now, by the engine's clock. It is for
// engines that add jobs in their own way, such as within a transaction. It rounds times up to
// whole microseconds before it checks them. An error wraps [ErrInvalid].
func NewRecord(j Job, now time.Time) (Record, error) {
	if strings.HasPrefix(j.Key, occurrenceKeys) {
		return Record{}, fmt.Errorf("%w: the key %q begins with %q, the prefix of schedules", ErrInvalid, j.Key, occurrenceKeys)
	}
	return newRecord(j, now)
}

// CheckWorkerName returns ErrInvalid for a name that no worker may have: see [WorkConfig].
func CheckWorkerName(name string) error {
	if err := valid.Name("the worker's name", name, MaxWorker); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// NewOccurrence returns NewRecord of a job of a schedule, which has the key of OccurrenceKey.
func NewOccurrence(j Job, schedule string, now time.Time) (Record, error) {
	j.Key = OccurrenceKey(schedule)
	if err := valid.Name("the schedule's name", schedule, MaxKey); err != nil && len(j.Key) <= MaxKey { // else the key says more
		return Record{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return newRecord(j, now)
}

func newRecord(j Job, now time.Time) (Record, error) {
	// All is rounded before it is checked: what is stored is what was checked.
	now = clock.WholeMicros(now)
	r, due := Record{Job: j, Schedule: j.schedule}, clock.WholeMicros(j.At)
	switch {
	case due.IsZero():
		due = clock.WholeMicros(now.Add(max(j.After, 0)))
	case j.After != 0:
		return Record{}, fmt.Errorf("%w: At and After are both set: set one", ErrInvalid)
	}
	r.Expires, r.MaxWait, r.Timeout, r.Retain = clock.WholeMicros(r.Expires), wholeMicros(r.MaxWait), wholeMicros(r.Timeout), wholeMicros(r.Retain)
	if err := r.check(due); err != nil {
		return Record{}, err
	}
	if due.Before(now) { // a moment that has passed needs no bucket of its own
		due = now
	}
	r.After, r.schedule = 0, ""
	r.SetID(rand.Text())
	r.At, r.Due, r.Born = due, due, now
	if r.Meta = maps.Clone(r.Meta); len(r.Meta) == 0 {
		r.Meta = nil
	}
	if r.MaxAttempts == 0 {
		r.MaxAttempts = defaultMaxAttempts
	}
	return r, nil
}

// wholeMicros rounds up to whole microseconds, except the longest duration. One that is negative stays
// as it is, to be refused.
func wholeMicros(d time.Duration) time.Duration {
	if d < 0 {
		return d
	}
	whole := d.Truncate(time.Microsecond)
	if whole < d && whole < math.MaxInt64-time.Microsecond {
		whole += time.Microsecond
	}
	return whole
}

// check returns what is wrong with the job, an error that wraps ErrInvalid.
func (r *Record) check(due time.Time) error {
	err := cmp.Or(valid.Name("the kind", r.Kind, MaxKind), valid.OptionalName("the key", r.Key, MaxKey), valid.OptionalName("the lane", r.Lane, MaxLane))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch {
	case len(r.Payload) > MaxPayload:
		return fmt.Errorf("%w: the payload has %d bytes, more than %d", ErrInvalid, len(r.Payload), MaxPayload)
	case r.MaxAttempts < 0:
		return fmt.Errorf("%w: MaxAttempts %d is negative", ErrInvalid, r.MaxAttempts)
	case r.Priority < Low || r.Priority > High:
		return fmt.Errorf("%w: Priority %d is not from -1 to 1", ErrInvalid, r.Priority)
	case r.Timeout < 0:
		return fmt.Errorf("%w: Timeout %v is negative", ErrInvalid, r.Timeout)
	case r.Retain < 0 || r.Retain > maxRetain:
		return fmt.Errorf("%w: Retain %v is negative, or more than a hundred years", ErrInvalid, r.Retain)
	case r.RetainPayload && r.Retain == 0:
		return fmt.Errorf("%w: RetainPayload needs a Retain", ErrInvalid)
	case r.OnKey < KeyRefuse || r.OnKey > KeyKeep:
		return fmt.Errorf("%w: OnKey %d is not from 0 to 3", ErrInvalid, r.OnKey)
	case r.MaxWait < 0:
		return fmt.Errorf("%w: MaxWait %v is negative", ErrInvalid, r.MaxWait)
	case r.MaxWait > 0 && r.OnKey != KeyLater:
		return fmt.Errorf("%w: MaxWait needs OnKey Later", ErrInvalid)
	case r.Key == "" && (r.OnKey != KeyRefuse || r.FreeWhenBegun || r.Signals):
		return fmt.Errorf("%w: OnKey, FreeWhenBegun and Signals need a Key", ErrInvalid)
	case strings.HasPrefix(r.Key, occurrenceKeys) && (r.OnKey != KeyRefuse || r.FreeWhenBegun || r.Signals):
		return fmt.Errorf("%w: the job of a schedule cannot have OnKey, FreeWhenBegun or Signals", ErrInvalid)
	case !r.Expires.IsZero() && !r.Expires.After(due):
		return fmt.Errorf("%w: Expires %v is not after the due time %v", ErrInvalid, r.Expires, due)
	}
	if err := cmp.Or(valid.Meta(r.Meta), valid.Time(due), valid.Time(r.Expires)); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
