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
//
// The payload is no field: as text of JSON it would have to be base64, a third larger, and be read
// and written with each version. A line ends at the first newline, which JSON has in no string.
// Names are short, since each job has them; a field that is zero is left out, except those that a
// job always has.
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

// encode returns a record as it is stored. Was is the message that it replaces, nil for a new job:
// the fields there that this package does not know are passed on. For a new job that costs nothing.
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

// toMicros and fromMicros have 0 for the zero time, which is left out as a field. So the begin of
// 1970 is no time at which a job expires, or begins to wait.
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

// decode reads what encode has written, without the fields that it does not know. The payload is
// not copied: it is a part of the message, and keeps that in memory. A damaged message is
// ErrStorage, and no job: its reader leaves it where it is.
//
// A payload of no bytes is nil, whichever it was when the job was added.
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

// address is what a Ref says: where a job was stored first. It never changes, so a Ref can be had
// from any version of the record. Programs store Refs, so no version of the data changes their form.
type address struct {
	part   int
	bucket int64
	born   int64 // microseconds: where in the stream to look for it
	id     string
}

// location is where a version of a job is stored: its status has the subject of these three,
// whichever of its copies was handed out. The bucket is not always that of its time; see buckets.
type location struct {
	id      string
	bucket  int64
	version int
}

// ref returns the text of an address. The sum, over the queue's name, too, tells it from a Ref of
// another queue and from one that was mistyped. It is no secret: who may call the engine can make a
// Ref of any job whose ID is known. Each address has one text, on which parseRef relies.
func (a address) ref(salt string) driver.Ref {
	s := fmt.Sprintf("%d.%s.%s.%s", a.part, strconv.FormatInt(a.bucket, 36), strconv.FormatInt(a.born, 36), a.id)
	return driver.Ref(s + "." + checksum(salt, s))
}

// checksum is a CRC: it finds a Ref that was mistyped, or that is of another queue, and it signs
// nothing. A Ref is an address for the engine, and the right to use it is that of the connection's
// user.
func checksum(salt, s string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(salt+s))), 36)
}

// maxID is how long the ID of a job may be, in bytes. One that package durable makes has at
// most 60.
const maxID = 128

// parseRef takes only results of ref: another text is no Ref, though its fields may mean the
// same. So a number that cannot be parsed and a wrong sum need no test of their own: the text differs.
// The ID becomes a token of subjects, so it has to be one: with a wildcard it would stand for all jobs
// of a bucket. Any text may come here, of any length.
func parseRef(r driver.Ref, salt string, parts int) (a address, err error) {
	if f := strings.Split(string(r), "."); len(r) <= maxID+64 && len(f) == 5 {
		a.part, _ = strconv.Atoi(f[0])
		a.bucket, _ = strconv.ParseInt(f[1], 36, 64)
		a.born, _ = strconv.ParseInt(f[2], 36, 64)
		a.id = f[3]
	}
	if a.part < 0 || a.part >= parts || len(a.id) > maxID || !validName(a.id) || a.ref(salt) != r {
		return a, fmt.Errorf("%w: %.200q is not a Ref of this queue", driver.ErrNotFound, string(r))
	}
	return a, nil
}

// fate is what becomes of a version of a job: the last message of its subject
// c.<bucket>.<id>.<version>. A version has one fate at a time, whoever looks: each is written on the
// condition that the one before is as it was read. Only claimed and freed are followed by another.
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

// fates are the texts of the fates, in their order. They are stored: a new one is a new version of
// the data.
var fates = []string{"", "run", "free", "done", "canceled", "moved", "dead"}

// final reports whether a version has ended: none of its copies is a job any more, though a newer
// version may be.
func (f fate) final() bool { return f >= done }

// status is such a message. The token tells who wrote it, when the answer was lost: it is random
// for each write that has to be distinguished, and a claim's also names its handle. The zero
// status is that of a version without a message.
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

// encode returns a status as it is stored: its fields in this order, with spaces in between. A field
// without a value is a dot, or 0, and is left out at the end of the text. It is no JSON, as each claim
// and each end writes one: that of a job that is done has 35 bytes.
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

// begun returns how many attempts have begun, as far as that is certain, and how many claims have
// not ended, if a claim that is there never does. A claim ahead names the attempt that it is for;
// whether that has begun nobody knows, so only an exact one counts.
func (s status) begun() (attempts, crashes int) {
	if s.fate != claimed {
		return s.attempt, s.crashes
	}
	if s.exact {
		return s.attempt, s.crashes + 1
	}
	return s.attempt - 1, s.crashes + 1
}

// decodeStatus reads what encode has written. A fate that it does not know is an error, and so is a
// field too many: their order is their name, so a newer build cannot add one without a new version
// of the data. The sequence is returned with an error, too, for a caller that only has to know that something
// is there.
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

// parseInt and itoa are for the numbers in subjects and messages, which are decimal. Those of a Ref
// are in base 36.
func parseInt(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// validName reports whether a name can be a token of a subject. Its characters separate nothing where
// it is written: tokens have dots between them, and the fields of a status spaces.
func validName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}
