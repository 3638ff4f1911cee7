package admin

import (
	"cmp"
	"time"
	"unicode/utf8"

	"github.com/tickwheel/tickwheel/durable"
)

// Job is a job as the handler shows it. Of a listing it has no payload, and of the error the
// first 300 bytes.
type Job struct {
	Ref         durable.Ref       `json:"ref"`
	Kind        string            `json:"kind"`
	State       string            `json:"state"` // waiting, running or dead
	Attempt     int               `json:"attempt"`
	MaxAttempts int               `json:"maxAttempts"`
	Due         time.Time         `json:"due"` // of the next attempt, of the one that runs, or of the last one
	First       time.Time         `json:"first"`
	Key         string            `json:"key,omitempty"`
	Lane        string            `json:"lane,omitempty"`
	Priority    string            `json:"priority,omitempty"` // low or high; else normal
	Meta        map[string]string `json:"meta,omitempty"`
	Timeout     float64           `json:"timeout,omitempty"` // seconds
	Expires     *time.Time        `json:"expires,omitempty"`
	Error       string            `json:"error,omitempty"`  // of the last attempt that failed
	Errors      []durable.Failure `json:"errors,omitempty"` // the newest last; not in a listing
	Payload     string            `json:"payload,omitempty"`
	Bytes       []byte            `json:"bytes,omitempty"` // of a payload that is not UTF-8, in base64
	Size        int               `json:"size"`            // of the payload, in bytes
}

const shortError = 300 // bytes, in a listing

// jobOf returns a job without its payload.
func jobOf(i durable.Info) Job {
	j := Job{
		Ref: i.Ref, Kind: i.Job.Kind, State: i.State.String(), Attempt: i.Attempt, MaxAttempts: i.Job.MaxAttempts,
		Due: i.Due.UTC(), First: i.Job.At.UTC(), Key: i.Job.Key, Lane: i.Job.Lane, Meta: i.Job.Meta,
		Timeout: i.Job.Timeout.Seconds(), Expires: timeOf(i.Job.Expires), Error: i.LastError, Size: len(i.Job.Payload),
	}
	if i.Job.Priority != durable.Normal {
		j.Priority = i.Job.Priority.String()
	}
	return j
}

// whole returns all of a job.
func whole(i durable.Info) Job {
	j := jobOf(i)
	j.Errors = i.Errors
	if utf8.Valid(i.Job.Payload) {
		j.Payload = string(i.Job.Payload)
	} else {
		j.Bytes = i.Job.Payload
	}
	return j
}

// short returns what a listing has of a job.
func short(i durable.Info) Job {
	j := jobOf(i)
	if len(j.Error) > shortError {
		cut := shortError
		for cut > 0 && !utf8.RuneStart(j.Error[cut]) {
			cut--
		}
		j.Error = j.Error[:cut] + "…"
	}
	return j
}

// timeOf returns nil for the zero time.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Listing is a page of jobs: those that run first, then those that wait, then those that are
// dead; within these, those that have been due for longest.
type Listing struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"` // for after; empty: there are no more
}

// Summary is how a queue is at a moment.
type Summary struct {
	Now      time.Time `json:"now"`
	Writable bool      `json:"writable"`
	Healthy  string    `json:"healthy"` // "" or what Queue.Health says

	// Of this process.
	Added      int64   `json:"added"`
	Attempts   int64   `json:"attempts"`
	Done       int64   `json:"done"`
	Failed     int64   `json:"failed"`
	Dead       int64   `json:"dead"`
	LeaseLost  int64   `json:"leaseLost"`
	Held       int64   `json:"held"`
	Running    int64   `json:"running"`
	Stuck      int64   `json:"stuck"`      // of these: handlers that have not returned though their Timeout is over
	Lateness   []int64 `json:"lateness"`   // handlers that began late by less than 1, 2, 4... microseconds, each
	ClaimAhead float64 `json:"claimAhead"` // seconds

	// Of all processes. If they cannot be read, BacklogError says why, and they are empty.
	BacklogError string    `json:"backlogError"`
	Waiting      int64     `json:"waiting"` // about
	Kinds        []Overdue `json:"kinds"`   // those with a job that is due and waits
}

// Overdue is a kind of which jobs are due and wait; see [durable.Overdue].
type Overdue struct {
	Kind    string      `json:"kind"`
	Jobs    int64       `json:"jobs"`
	Oldest  durable.Ref `json:"oldest"`
	Due     time.Time   `json:"due"`
	Age     float64     `json:"age"` // seconds since Due
	Handled bool        `json:"handled"`
}

// Counts is how many jobs there are.
type Counts struct {
	Groups  []Group    `json:"groups"`
	Overdue int64      `json:"overdue"`
	First   *time.Time `json:"first,omitempty"` // when the first of those that wait is due
}

// Group is how many jobs of a kind are in a state.
type Group struct {
	Kind  string `json:"kind"`
	State string `json:"state"`
	Jobs  int64  `json:"jobs"`
}

// Schedule is what durable.ScheduleInfo has.
type Schedule struct {
	Name   string      `json:"name"`
	Spec   string      `json:"spec,omitempty"` // empty: its times were code of an earlier release
	Kind   string      `json:"kind"`
	Paused bool        `json:"paused,omitempty"`
	Last   *time.Time  `json:"last,omitempty"`
	Next   *time.Time  `json:"next,omitempty"`
	Ref    durable.Ref `json:"ref,omitempty"` // of the occurrence that waits or runs
}

// Worker is what durable.WorkerInfo has.
type Worker struct {
	Name    string     `json:"name"`
	Alive   bool       `json:"alive"`
	Until   time.Time  `json:"until"` // the end of its lease
	Jobs    int64      `json:"jobs"`
	Since   *time.Time `json:"since,omitempty"`
	Host    string     `json:"host,omitempty"`
	Process int        `json:"process,omitempty"`
	Began   *time.Time `json:"began,omitempty"`

	Label    string   `json:"label,omitempty"` // durable.WithWorkerName
	Kinds    []string `json:"kinds,omitempty"` // that it has handlers for: the first 100
	AllKinds int      `json:"allKinds"`        // how many; 0: not known
}

// Limit is what durable.LimitInfo has, with the fields of durable.Limit among its own.
type Limit struct {
	Name string `json:"name"`
	durable.Limit
	Taken   int        `json:"taken"` // places, in all processes
	Lanes   int        `json:"lanes,omitempty"`
	Waiting int64      `json:"waiting"`        // in the process that answers
	Next    *time.Time `json:"next,omitempty"` // token
}

// Command is the body of a write.
type Command struct {
	Refs  []durable.Ref `json:"refs,omitempty"`
	Names []string      `json:"names,omitempty"` // of schedules or limits
	Key   string        `json:"key,omitempty"`
	At    time.Time     `json:"at,omitzero"`
	All   bool          `json:"all,omitempty"` // redrive: the dead jobs; pause, resume: the queue
	Kind  string        `json:"kind,omitempty"`
	Lane  string        `json:"lane,omitempty"`
	Limit durable.Limit `json:"limit,omitzero"`
}

// Result is what came of a write to one job, schedule or limit, or to what is paused.
type Result struct {
	Ref   string `json:"ref,omitempty"` // or key, or name
	Done  bool   `json:"done"`
	Why   string `json:"why,omitempty"` // not, without an error
	Error string `json:"error,omitempty"`
	Jobs  int64  `json:"jobs,omitempty"` // of redrive of all: how many
}

// byKind sorts groups.
func byKind(a, b Group) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
}
