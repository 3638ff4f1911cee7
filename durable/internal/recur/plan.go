package recur

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Plan is what says when the occurrences of a schedule are. Engines keep it as text: with
// the schedule, and with each occurrence, so that whoever runs that can make the next one.
type Plan struct {
	Spec   string `json:"spec,omitempty"`   // "": its times were code of an earlier release
	Missed int    `json:"missed,omitempty"` // n: the last n run; 0: one for all; -1: none
	Skip   bool   `json:"skip,omitempty"`   // what comes due while one runs
	Jitter int64  `json:"jitter,omitempty"` // microseconds, as all of these
	Start  int64  `json:"start,omitempty"`
	End    int64  `json:"end,omitempty"`

	// Since is when the times were set, or a pause ended: no earlier occurrence was missed.
	// 0: an earlier release has stored the schedule.
	Since int64 `json:"since,omitempty"`

	// Of the schedule alone.
	Paused bool      `json:"paused,omitempty"`
	Job    *Template `json:"job,omitempty"`

	// Of an occurrence alone: by which revision of the schedule it was made, and its time by
	// that.
	Revision int64 `json:"rev,omitempty"`
	At       int64 `json:"at,omitempty"`

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
	Priority    int8              `json:"prio,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	Timeout     time.Duration     `json:"timeout,omitempty"`
}

// TemplateOf returns what a record does.
func TemplateOf(r *driver.Record) *Template {
	return &Template{r.Kind, r.Payload, r.MaxAttempts, r.Lane, r.Priority, r.Meta, r.Timeout}
}

// Record returns a record that has nothing else.
func (t *Template) Record() driver.Record {
	return driver.Record{
		Kind: t.Kind, Payload: t.Payload, MaxAttempts: t.MaxAttempts, Lane: t.Lane, Priority: t.Priority,
		Meta: t.Meta, Timeout: t.Timeout,
	}
}

// Encode returns the text that PlanOf reads.
func (p *Plan) Encode() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(text)
}

// PlanOf reads a plan. An occurrence that is older than plans has none. A plan that cannot be
// read is of a newer release: it has a Spec that cannot be read either.
func PlanOf(text string) *Plan {
	p := &Plan{}
	if text != "" && json.Unmarshal([]byte(text), p) != nil {
		return &Plan{Spec: "of a newer release"}
	}
	return p
}

// times tells the first time after another one, the zero time if there is none.
type times func(prev time.Time) time.Time

const grace = time.Minute // of one that is left out when it is late

// occurrence makes the record of the occurrence at a time, which is due then or later. Its ID
// tells it from all others, also from one of the same time that was canceled.
func (p *Plan) occurrence(name string, revision int64, next times, job *Template, at, due, born time.Time) (*driver.Record, error) {
	j := job.Record()
	j.At, j.Key = due, driver.SeriesKey(name)
	if p.Missed < 0 && !p.Pass {
		after := next(at)
		j.Expires = j.At.Add(grace)
		if !after.IsZero() && after.Sub(at) < grace {
			j.Expires = j.At.Add(max(after.Sub(at), time.Second))
		}
	}
	rec, err := driver.NewRecord(j, born)
	if err != nil {
		return nil, err
	}
	// With the revision: an occurrence may be canceled and stored again within a microsecond.
	sum := sha256.Sum256([]byte(name))
	rec.ID = hex.EncodeToString(sum[:8])
	for _, n := range []int64{at.UnixMicro(), rec.Born.UnixMicro(), revision} {
		rec.ID += "-" + strconv.FormatInt(n, 36)
	}
	own := *p
	own.Paused, own.Job, own.Revision, own.At = false, nil, revision, at.UnixMicro()
	rec.Series, rec.Plan = name, own.Encode()
	return &rec, nil
}

// due is when an occurrence is due, with its jitter: the same whoever asks.
func (p *Plan) due(name string, at time.Time) time.Time {
	if p.Jitter <= 0 {
		return at
	}
	sum := sha256.Sum256([]byte(name + "\n" + strconv.FormatInt(at.UnixMicro(), 36)))
	return at.Add(time.Duration(binary.BigEndian.Uint64(sum[:])%uint64(p.Jitter)) * time.Microsecond)
}

// Occurred returns the time of an occurrence by its schedule.
func Occurred(r *driver.Record) time.Time {
	if p := PlanOf(r.Plan); p.At != 0 {
		return FromMicros(p.At)
	}
	return r.Due
}

// after returns the time after the occurrence at, which began and has ended now. Those that
// were missed by then are made up for by that one run, or by n of them, or left out.
func (p *Plan) after(next times, at, began, ended time.Time) time.Time {
	if n := p.Missed; n > 0 {
		if made := lastOf(next, at, began, n); !made.IsZero() {
			return made
		}
	}
	from := at
	if began.After(from) {
		from = began
	}
	if p.Skip && ended.After(from) {
		from = ended
	}
	return next(from)
}

// lastOf returns the first of the last n times after from, up to to; zero if there is
// none. It looks at spans that end at to, each twice as long as the last one, so that what
// it costs goes by n and not by how long nobody was there.
func lastOf(next times, from, to time.Time, n int) time.Time {
	for span := time.Second; ; span *= 2 {
		since := to.Add(-span)
		whole := !since.After(from) || span > 1<<60
		if whole {
			since = from
		}
		var all []time.Time
		for at := next(since); !at.IsZero() && !at.After(to); at = next(at) {
			if all = append(all, at); len(all) > n {
				all = all[1:]
			}
		}
		if len(all) == n || whole && len(all) > 0 {
			return all[0]
		}
		if whole {
			return time.Time{}
		}
	}
}

// FromMicros returns a time in microseconds since 1970; 0 is the zero time.
func FromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n)
}
