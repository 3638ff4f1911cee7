package jetstream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/unread"
)

// wire is a record as it is stored: a line of JSON, and then the payload as it is. Times and
// durations are in microseconds. FORMAT.md says when a field may be added.
type wire struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Key     string `json:"key,omitempty"`
	At      int64  `json:"at"`
	Due     int64  `json:"due"`
	Born    int64  `json:"born"`
	Max     int    `json:"max"`
	Version int    `json:"v,omitempty"`
	Attempt int    `json:"n,omitempty"`
	Crashes int    `json:"x,omitempty"`
	Error   string `json:"err,omitempty"`

	Errors     []driver.Failure  `json:"errs,omitempty"`
	Schedule   string            `json:"sched,omitempty"`
	Occurrence string            `json:"occ,omitempty"`
	Lane       string            `json:"lane,omitempty"`
	Priority   driver.Priority   `json:"prio,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
	Timeout    int64             `json:"timeout,omitempty"`
	Expires    int64             `json:"expires,omitempty"`
	Free       bool              `json:"free,omitempty"`
	Signals    bool              `json:"signals,omitempty"`
	First      int64             `json:"first,omitempty"`
	Retain     int64             `json:"retain,omitempty"`
	Payloads   bool              `json:"payloads,omitempty"` // RetainPayload
	Ending     *driver.Ending    `json:"end,omitempty"`
	Signal     []byte            `json:"signal,omitzero"` // A signal without a payload is not nil.
}

// encode returns a record as it is stored. Was is the message that it replaces, nil for a new
// job: the fields there that this package does not know are passed on.
func encode(r *driver.Record, was []byte) []byte {
	head, err := json.Marshal(wire{
		ID: r.ID, Kind: r.Kind, Key: r.Key, At: r.At.UnixMicro(), Due: r.Due.UnixMicro(),
		Born: r.Born.UnixMicro(), Max: r.MaxAttempts, Version: r.Version, Attempt: r.Attempt,
		Crashes: r.Crashes, Error: r.LastError, Schedule: r.Schedule, Occurrence: r.Occurrence,
		Lane: r.Lane, Priority: r.Priority, Meta: r.Meta,
		Timeout: r.Timeout.Microseconds(), Expires: toMicros(r.Expires), Errors: r.Errors,
		Free: r.FreeWhenBegun, Signals: r.Signals, First: toMicros(r.First), Signal: r.Signal,
		Retain: r.Retain.Microseconds(), Payloads: r.RetainPayload, Ending: r.Ending,
	})
	if err != nil {
		panic(err) // strings and integers
	}
	was, _, _ = bytes.Cut(was, []byte{'\n'})
	return append(append(unread.Of[wire](was).AddTo(head), '\n'), r.Payload...)
}

// toMicros and fromMicros have 0 for the zero time.
func toMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n)
}

func decode(data []byte) (driver.Record, error) {
	head, payload, ok := bytes.Cut(data, []byte{'\n'})
	var w wire
	if err := json.Unmarshal(head, &w); err != nil || !ok {
		return driver.Record{}, fmt.Errorf("%w: cannot read a record: %v", driver.ErrStorage, err)
	}
	if len(payload) == 0 {
		payload = nil
	}
	return driver.Record{
		ID: w.ID,
		Job: driver.Job{
			Kind: w.Kind, Key: w.Key, Payload: payload, At: time.UnixMicro(w.At), MaxAttempts: w.Max,
			Lane: w.Lane, Priority: w.Priority, Meta: w.Meta, FreeWhenBegun: w.Free, Signals: w.Signals,
			Timeout: time.Duration(w.Timeout) * time.Microsecond, Expires: fromMicros(w.Expires),
			Retain: time.Duration(w.Retain) * time.Microsecond, RetainPayload: w.Payloads,
		},
		Due: time.UnixMicro(w.Due), Born: time.UnixMicro(w.Born), Version: w.Version,
		Attempt: w.Attempt, Crashes: w.Crashes, LastError: w.Error, Errors: w.Errors, Schedule: w.Schedule, Occurrence: w.Occurrence,
		First: fromMicros(w.First), Signal: w.Signal, Ending: w.Ending,
	}, nil
}

// address is what a Ref says: where a job was stored first. It never changes, so a Ref
// can be had from any version of the record.
type address struct {
	part   int
	bucket int64
	born   int64 // microseconds: where in the stream to look for it
	id     string
}

// location is where a version of a job is stored.
type location struct {
	id      string
	bucket  int64
	version int
}

// ref returns the text of an address. The sum, over the queue's name, too, tells it from
// a Ref of another queue and from one that was mistyped. It is no secret: who may call the
// engine can make a Ref of any job whose ID is known.
func (a address) ref(salt string) driver.Ref {
	s := fmt.Sprintf("%d.%s.%s.%s", a.part, strconv.FormatInt(a.bucket, 36), strconv.FormatInt(a.born, 36), a.id)
	return driver.Ref(s + "." + checksum(salt, s))
}

func checksum(salt, s string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(salt+s))), 36)
}

// maxID is how long the ID of a job may be, in bytes. One that package durable makes has at
// most 60.
const maxID = 128

// parseRef takes only what ref returns. The ID becomes a token of subjects, so it has to
// be one: with a wildcard it would stand for all jobs of a bucket.
func parseRef(r driver.Ref, salt string, parts int) (a address, err error) {
	unknown := fmt.Errorf("%w: %.200q is not a Ref of this queue", driver.ErrNotFound, string(r))
	f := strings.Split(string(r), ".")
	if len(r) > maxID+64 || len(f) != 5 || checksum(salt, strings.Join(f[:4], ".")) != f[4] {
		return a, unknown
	}
	if a.part, err = strconv.Atoi(f[0]); err != nil || a.part < 0 || a.part >= parts {
		return a, unknown
	}
	if a.bucket, err = strconv.ParseInt(f[1], 36, 64); err != nil {
		return a, unknown
	}
	if a.born, err = strconv.ParseInt(f[2], 36, 64); err != nil {
		return a, unknown
	}
	a.id = f[3]
	if len(a.id) > maxID || !validName(a.id) || a.ref(salt) != r {
		return a, unknown
	}
	return a, nil
}

// fate is what becomes of a version of a job: the last message of its subject
// c.<bucket>.<id>.<version>.
type fate int

const (
	none    fate = iota // there is no message: it waits
	claimed             // a worker has it, if its lease is not over
	freed               // it was claimed and handed back: it waits
	done                // the rest is final
	canceled
	moved // there is a newer version elsewhere
	dead
)

var fates = []string{"", "run", "free", "done", "canceled", "moved", "dead"}

func (f fate) final() bool { return f >= done }

// status is such a message. The token tells who wrote it, when the answer was lost.
type status struct {
	fate    fate
	token   string
	worker  string   // of claimed
	attempt int      // of claimed, and of freed those that count
	bucket  int64    // of moved: where to
	crashes int      // of claimed and freed: how many claims before had not ended
	exact   bool     // of claimed: the claim counts as an attempt though it never ends
	permits []string // of claimed: its permits (permits.go)
	seq     uint64   // of the message in the stream; 0 for none
}

// encode returns a status as it is stored: its fields in this order, with spaces in between.
// A field without a value is a dot, or 0, and is left out at the end of the text.
func (s status) encode() []byte {
	exact := 0
	if s.exact {
		exact = 1
	}
	text := fmt.Appendf(nil, "%s %s %s %d %d %d %d %s", fates[s.fate], s.token, cmp.Or(s.worker, "."), s.attempt,
		s.crashes, exact, s.bucket, cmp.Or(strings.Join(s.permits, ","), "."))
	for bytes.HasSuffix(text, []byte(" .")) || bytes.HasSuffix(text, []byte(" 0")) {
		text = text[:len(text)-2]
	}
	return text
}

// begun returns how many attempts have begun, as far as that is certain, and how many
// claims have not ended, if a claim that is there never does.
func (s status) begun() (attempts, crashes int) {
	if s.fate != claimed {
		return s.attempt, s.crashes
	}
	if s.exact {
		return s.attempt, s.crashes + 1
	}
	return s.attempt - 1, s.crashes + 1
}

func decodeStatus(data []byte, seq uint64) (status, error) {
	s := status{seq: seq}
	all := strings.Fields(string(data))
	var f [8]string
	ok := len(all) >= 2 && copy(f[:], all) == len(all)
	number := func(i int) int64 {
		n, err := strconv.ParseInt(cmp.Or(f[i], "0"), 10, 64)
		ok = ok && err == nil
		return n
	}
	s.fate, s.token, s.attempt, s.crashes = fate(slices.Index(fates, f[0])), f[1], int(number(3)), int(number(4))
	s.exact, s.bucket = number(5) == 1, number(6)
	if f[2] != "." {
		s.worker = f[2]
	}
	if f[7] != "" {
		s.permits = strings.Split(f[7], ",")
	}
	if !ok || s.fate <= none {
		return status{seq: seq}, fmt.Errorf("%w: cannot read the status of a job: %q", driver.ErrStorage, data)
	}
	return s, nil
}

func (a location) String() string { return itoa(a.bucket) + "." + a.id + "." + strconv.Itoa(a.version) }

func parseInt(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func validName(name string) bool {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return name != ""
}
