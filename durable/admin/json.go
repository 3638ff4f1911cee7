package admin

import (
	"cmp"
	"time"
	"unicode/utf8"

	"github.com/tickwheel/tickwheel/durable"
)

// Job is a job as the handler shows it. In a listing it has no payload, and only the
// first 300 bytes of the error.
type Job struct {
	Ref         durable.Ref       `json:"ref"`
	Kind        string            `json:"kind"`
	State       string            `json:"state"` // Either waiting, running, dead, done or canceled.
	Attempt     int               `json:"attempt"`
	MaxAttempts int               `json:"maxAttempts"`
	Due         time.Time         `json:"due"` // The time of the next attempt, of the running one, or of the last.
	First       time.Time         `json:"first"`
	Worker      string            `json:"worker,omitempty"` // The worker that has claimed a running job, or has stored the end of a retained one.
	Key         string            `json:"key,omitempty"`
	Lane        string            `json:"lane,omitempty"`
	Priority    string            `json:"priority,omitempty"` // Either low or high; empty for normal.
	Meta        map[string]string `json:"meta,omitempty"`
	Timeout     float64           `json:"timeout,omitempty"` // In seconds.
	Expires     *time.Time        `json:"expires,omitempty"`
	Began       *time.Time        `json:"began,omitempty"`  // When the last attempt of a retained job began.
	Ended       *time.Time        `json:"ended,omitempty"`  // When a retained job ended.
	Error       string            `json:"error,omitempty"`  // The error of the last failed attempt.
	Errors      []durable.Failure `json:"errors,omitempty"` // The newest last. Not in a listing.
	Payload     string            `json:"payload,omitempty"`
	Bytes       []byte            `json:"bytes,omitempty"` // A payload that is not UTF-8, in base64.
	Size        int               `json:"size"`            // The size of the payload in bytes.
}

const shortError = 300 // bytes, in a listing

// jobOf returns a job without its payload.
func jobOf(i durable.Info) Job {
	j := Job{
		Ref: i.Ref, Kind: i.Job.Kind, State: i.State.String(), Attempt: i.Attempt, MaxAttempts: i.Job.MaxAttempts,
		Due: i.Due.UTC(), First: i.Job.At.UTC(), Worker: i.Worker, Key: i.Job.Key, Lane: i.Job.Lane, Meta: i.Job.Meta,
		Timeout: i.Job.Timeout.Seconds(), Expires: timeOf(i.Job.Expires), Began: timeOf(i.Began), Ended: timeOf(i.End), Error: i.LastError, Size: len(i.Job.Payload),
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

// Listing is a page of jobs: running ones first, then waiting, dead, canceled and done ones; within
// each state, the longest due first.
type Listing struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"` // The value of after for the next page; empty on the last.
}

// Summary describes a queue at one moment.
type Summary struct {
	Now      time.Time `json:"now"`
	Writable bool      `json:"writable"`
	Healthy  string    `json:"healthy"` // The error of Queue.Health; empty if healthy.

	// The figures of this process.
	Added      int64   `json:"added"`
	Attempts   int64   `json:"attempts"`
	Done       int64   `json:"done"`
	Failed     int64   `json:"failed"`
	Dead       int64   `json:"dead"`
	LeaseLost  int64   `json:"leaseLost"`
	Held       int64   `json:"held"`
	Running    int64   `json:"running"`
	Stuck      int64   `json:"stuck"`      // Counts running handlers whose Timeout ended at least a lease ago.
	Lateness   []int64 `json:"lateness"`   // Counts handlers that began late by less than 1, 2, 4... microseconds.
	ClaimAhead float64 `json:"claimAhead"` // In seconds.

	// The figures of all processes. If they cannot be read, they are empty and
	// BacklogError has the reason.
	BacklogError string    `json:"backlogError"`
	Waiting      int64     `json:"waiting"` // About the number of waiting jobs.
	Kinds        []Overdue `json:"kinds"`   // Kinds with a job that is due and waits.
}

// Overdue is a kind with jobs that are due and wait; see [durable.Overdue].
type Overdue struct {
	Kind    string      `json:"kind"`
	Jobs    int64       `json:"jobs"`
	Oldest  durable.Ref `json:"oldest"`
	Due     time.Time   `json:"due"`
	Age     float64     `json:"age"` // The seconds since Due.
	Handled bool        `json:"handled"`
}

// Counts has the numbers of jobs, by kind and state.
type Counts struct {
	Groups  []Group    `json:"groups"`
	Overdue int64      `json:"overdue"`
	First   *time.Time `json:"first,omitempty"` // The due time of the first waiting job.
}

// Group counts the jobs of a kind in a state.
type Group struct {
	Kind  string `json:"kind"`
	State string `json:"state"`
	Jobs  int64  `json:"jobs"`
}

// Schedule has the fields of durable.ScheduleInfo.
type Schedule struct {
	Name   string      `json:"name"`
	Spec   string      `json:"spec"`
	Kind   string      `json:"kind"`
	Paused bool        `json:"paused,omitempty"`
	Last   *time.Time  `json:"last,omitempty"`
	Next   *time.Time  `json:"next,omitempty"`
	Ref    durable.Ref `json:"ref,omitempty"` // The Ref of the occurrence that waits or runs.
}

// Worker has the fields of durable.WorkerInfo.
type Worker struct {
	Name    string     `json:"name"`
	Alive   bool       `json:"alive"`
	Until   time.Time  `json:"until"` // The end of its lease.
	Jobs    int64      `json:"jobs"`
	Since   *time.Time `json:"since,omitempty"`
	Host    string     `json:"host,omitempty"`
	Process int        `json:"process,omitempty"`
	Began   *time.Time `json:"began,omitempty"`

	Label    string   `json:"label,omitempty"` // durable.WithWorkerName
	Kinds    []string `json:"kinds,omitempty"` // Kinds with a handler: the first 100.
	AllKinds int      `json:"allKinds"`        // The number of kinds; 0 if unknown.
}

func workersOf(infos []durable.WorkerInfo, now time.Time) []Worker {
	all := make([]Worker, len(infos))
	for i, w := range infos {
		all[i] = Worker{w.Name, w.Until.After(now), w.Until.UTC(), w.Jobs, timeOf(w.Since), w.Host, w.Process, timeOf(w.Began), w.Label, w.Kinds, w.AllKinds}
	}
	return all
}

// Limit has the fields of durable.LimitInfo and of durable.Limit.
type Limit struct {
	Name string `json:"name"`
	durable.Limit
	Taken   int        `json:"taken"` // Permits taken, in all processes.
	Lanes   int        `json:"lanes,omitempty"`
	Waiting int64      `json:"waiting"`        // Jobs that wait in the process that answers.
	Next    *time.Time `json:"next,omitempty"` // The time of the next token.
}

func limitOf(i durable.LimitInfo) Limit {
	return Limit{i.Name, i.Limit, i.Taken, i.Lanes, i.Waiting, timeOf(i.Next)}
}

// Reason has the fields of durable.Reason.
type Reason struct {
	Cause   durable.Cause  `json:"cause"`
	Text    string         `json:"text"`
	Now     time.Time      `json:"now"`
	Job     *Job           `json:"job,omitempty"` // As in a listing.
	Until   *time.Time     `json:"until,omitempty"`
	Pause   *durable.Pause `json:"pause,omitempty"`
	Limit   *Limit         `json:"limit,omitempty"`
	First   int            `json:"first,omitempty"`
	Holder  durable.Ref    `json:"holder,omitempty"`
	Running []Job          `json:"running,omitempty"`
	Workers []Worker       `json:"workers,omitempty"`
}

func reasonOf(r durable.Reason) Reason {
	a := Reason{
		Cause: r.Cause, Text: r.Text, Now: r.Now.UTC(), Until: timeOf(r.Until), Pause: r.Pause, First: r.First, Holder: r.Holder,
		Workers: workersOf(r.Workers, r.Now),
	}
	if r.Job.Ref != "" {
		j := short(r.Job)
		a.Job = &j
	}
	if r.Limit != nil {
		l := limitOf(*r.Limit)
		a.Limit = &l
	}
	for _, i := range r.Running {
		a.Running = append(a.Running, short(i))
	}
	return a
}

// End says whether a job has ended, and how.
type End struct {
	State string `json:"state,omitempty"` // Either dead, done or canceled, or unknown if the job is not kept; empty if it has not ended.
	Error string `json:"error,omitempty"` // The error of the last attempt that failed.
}

// Command is the body of a write.
type Command struct {
	Refs  []durable.Ref `json:"refs,omitempty"`
	Names []string      `json:"names,omitempty"` // Names of schedules or limits.
	Key   string        `json:"key,omitempty"`
	At    time.Time     `json:"at,omitzero"`
	All   bool          `json:"all,omitempty"` // For redrive all dead jobs; for pause and resume the whole queue.
	Kind  string        `json:"kind,omitempty"`
	Lane  string        `json:"lane,omitempty"`
	For   float64       `json:"for,omitempty"` // For pause: it ends after so many seconds; 0: it lasts until resume.
	Limit durable.Limit `json:"limit,omitzero"`
}

// Result is the result of a write for one job, schedule, limit or pause.
type Result struct {
	Ref   string `json:"ref,omitempty"` // A Ref, key or name.
	Done  bool   `json:"done"`
	Why   string `json:"why,omitempty"` // Set if nothing was done, without an error.
	Error string `json:"error,omitempty"`
	Jobs  int64  `json:"jobs,omitempty"` // The number of jobs, for redrive of all.
}

// byKind sorts groups.
func byKind(a, b Group) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
}
