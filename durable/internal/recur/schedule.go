package recur

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/unread"
)

// Schedule says when occurrences are. An engine keeps it as text, in driver.Schedule.Definition.
type Schedule struct {
	Spec   string `json:"spec,omitempty"`
	Missed int    `json:"missed,omitempty"` // n: the last n run; 0: one for all; -1: none
	Skip   bool   `json:"skip,omitempty"`   // what comes due while one runs
	Jitter int64  `json:"jitter,omitempty"` // microseconds, as all of these
	Start  int64  `json:"start,omitempty"`
	End    int64  `json:"end,omitempty"`

	// Since is when the times were set, or a pause ended: no earlier occurrence was missed.
	Since int64 `json:"since,omitempty"`

	Paused bool      `json:"paused,omitempty"`
	Job    *Template `json:"job,omitempty"`

	unread unread.Fields // of the text that it was read from
}

// Occurrence is one occurrence, with the Schedule as it was when the occurrence was made, without
// Paused and Job: so that any worker that runs it can make the next one. An engine keeps it as
// text, in driver.Record.Occurrence.
type Occurrence struct {
	Schedule
	Revision int64 `json:"rev,omitempty"` // of the schedule
	At       int64 `json:"at,omitempty"`  // its time by the schedule

	// Pass marks a placeholder: a worker that could not read the spec has stored it. One that
	// can calls no handler for it, and stores the next occurrence with its end.
	Pass bool `json:"pass,omitempty"`
}

// Template is what each occurrence does.
type Template struct {
	Kind        string            `json:"kind"`
	Payload     []byte            `json:"payload,omitempty"`
	MaxAttempts int               `json:"max"`
	Lane        string            `json:"lane,omitempty"`
	Priority    driver.Priority   `json:"prio,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	Timeout     int64             `json:"timeout,omitempty"`  // microseconds
	Retain      int64             `json:"retain,omitempty"`   // microseconds
	Payloads    bool              `json:"payloads,omitempty"` // RetainPayload

	unread unread.Fields // of the text that it was read from
}

// MarshalJSON writes a Template, with the fields that were not read.
func (t *Template) MarshalJSON() ([]byte, error) {
	type plain Template
	text, err := json.Marshal((*plain)(t))
	return t.unread.AddTo(text), err
}

// UnmarshalJSON reads a Template.
func (t *Template) UnmarshalJSON(text []byte) error {
	type plain Template
	if err := json.Unmarshal(text, (*plain)(t)); err != nil {
		return err
	}
	t.unread = unread.Of[plain](text)
	return nil
}

// TemplateOf returns what a job does.
func TemplateOf(j *driver.Job) *Template {
	return &Template{
		Kind: j.Kind, Payload: j.Payload, MaxAttempts: j.MaxAttempts, Lane: j.Lane, Priority: j.Priority,
		Meta: j.Meta, Timeout: j.Timeout.Microseconds(),
		Retain: j.Retain.Microseconds(), Payloads: j.RetainPayload,
	}
}

// Restore returns a job that has nothing else.
func (t *Template) Restore() driver.Job {
	return driver.Job{
		Kind: t.Kind, Payload: t.Payload, MaxAttempts: t.MaxAttempts, Lane: t.Lane, Priority: t.Priority,
		Meta: t.Meta, Timeout: time.Duration(t.Timeout) * time.Microsecond,
		Retain: time.Duration(t.Retain) * time.Microsecond, RetainPayload: t.Payloads,
	}
}

// Encode returns the text that DecodeSchedule reads. What DecodeSchedule has not read is in it.
func (s *Schedule) Encode() string { return encode(s, s.unread) }

// Encode returns the text that DecodeOccurrence reads.
func (o *Occurrence) Encode() string { return encode(o, o.unread) }

func encode(v any, rest unread.Fields) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(rest.AddTo(text))
}

// DecodeSchedule reads a Schedule. A newer release may have stored one that cannot be read: it
// gets a Spec that cannot be read either, and no Job.
func DecodeSchedule(text string) *Schedule {
	s := &Schedule{}
	if text != "" && json.Unmarshal([]byte(text), s) != nil {
		return &Schedule{Spec: unreadableSpec}
	}
	s.unread = unread.Of[Schedule]([]byte(text))
	return s
}

// DecodeOccurrence reads an Occurrence, as DecodeSchedule does.
func DecodeOccurrence(text string) *Occurrence {
	o := &Occurrence{}
	if text != "" && json.Unmarshal([]byte(text), o) != nil {
		return &Occurrence{Schedule: Schedule{Spec: unreadableSpec}}
	}
	o.unread = unread.Of[Occurrence]([]byte(text))
	return o
}

const unreadableSpec = "of a newer release"

// times tells the first time after another one, the zero time if there is none.
type times func(prev time.Time) time.Time

const grace = time.Minute // of one that is left out when it is late

// occurrence makes the record of the occurrence at a time, which is due then or later. Its ID
// tells it from all others, also from one of the same time that was canceled. Nil for next makes a
// placeholder.
func (s *Schedule) occurrence(name string, revision int64, next times, job *Template, at, due, born time.Time) (*driver.Record, error) {
	j := job.Restore()
	j.At = due
	if s.Missed < 0 && next != nil {
		after := next(at)
		j.Expires = j.At.Add(grace)
		if !after.IsZero() && after.Sub(at) < grace {
			j.Expires = j.At.Add(max(after.Sub(at), time.Second))
		}
	}
	rec, err := driver.NewOccurrence(j, name, born)
	if err != nil {
		return nil, err
	}
	// With the revision: an occurrence may be canceled and stored again within a microsecond.
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:8])
	for _, n := range []int64{at.UnixMicro(), rec.Born.UnixMicro(), revision} {
		id += "-" + strconv.FormatInt(n, 36)
	}
	rec.SetID(id)
	o := Occurrence{Schedule: *s, Revision: revision, At: at.UnixMicro(), Pass: next == nil}
	o.Paused, o.Job = false, nil
	rec.Schedule, rec.Occurrence = name, o.Encode()
	return &rec, nil
}

// madeAt returns when an occurrence was made, by its ID, to which SetID may add a part; the zero time if the ID does not say so.
func madeAt(id string) time.Time {
	parts := strings.Split(id, "-")
	if len(parts) < 4 {
		return time.Time{}
	}
	n, err := strconv.ParseInt(parts[2], 36, 64)
	if err != nil {
		return time.Time{}
	}
	return FromMicros(n)
}

// due is when an occurrence is due, with its jitter: the same whoever asks.
func (s *Schedule) due(name string, at time.Time) time.Time {
	if s.Jitter <= 0 {
		return at
	}
	sum := sha256.Sum256([]byte(name + "\n" + strconv.FormatInt(at.UnixMicro(), 36)))
	return at.Add(time.Duration(binary.BigEndian.Uint64(sum[:])%uint64(s.Jitter)) * time.Microsecond)
}

// Occurred returns the time of an occurrence by its schedule.
func Occurred(r *driver.Record) time.Time {
	if o := DecodeOccurrence(r.Occurrence); o.At != 0 {
		return FromMicros(o.At)
	}
	return r.Due
}

// after returns the time after the occurrence at, which began and has ended now. Those that
// were missed by then are made up for by that one run, or by n of them, or left out.
func (s *Schedule) after(next times, at, began, ended time.Time) time.Time {
	if n := s.Missed; n > 0 {
		if made := lastOf(next, at, began, n); !made.IsZero() {
			return made
		}
	}
	from := at
	if began.After(from) {
		from = began
	}
	if s.Skip && ended.After(from) {
		from = ended
	}
	return next(from)
}

// lastOf returns the first of the last n times after from, up to to; zero if there is
// none. It looks at periods that end at to, each twice as long as the last one, until one has n
// times. If that has more than 2n, it looks for one between. So the calls are some hundred for
// each of n at the most, however many times were missed.
func lastOf(next times, from, to time.Time, n int) time.Time {
	longest := max(to.Sub(from), 0)
	few, many := time.Duration(0), time.Duration(0) // periods with less than n times, and with too many; many is 0 if none is known
	for period := min(time.Second, longest); ; {
		all := first(next, to.Add(-period), to, 2*n+1)
		switch {
		case len(all) > 2*n:
			many = period
		case len(all) >= n || period == longest && len(all) > 0:
			return all[max(0, len(all)-n)]
		case period == longest:
			return time.Time{}
		default:
			few = period
		}
		switch {
		case many > 0:
			period = few + (many-few)/2
		case period > longest/2:
			period = longest
		default:
			period *= 2
		}
	}
}

// first returns up to n times after from, up to to.
func first(next times, from, to time.Time, n int) (all []time.Time) {
	for at := next(from); len(all) < n && !at.IsZero() && !at.After(to); at = next(at) {
		all = append(all, at)
	}
	return all
}

// FromMicros returns a time in microseconds since 1970; 0 is the zero time.
func FromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n)
}
