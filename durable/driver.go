package durable

import "github.com/tickwheel/tickwheel/durable/driver"

// The types of jobs are those of package driver, so that an engine takes and returns them as
// they are. A comment here names the fields; that of the type there documents each.

// Job describes a job to add: its work and its time. The zero values of all fields but Kind
// are useful. [driver.Job] documents the fields:
//
//	Kind, Payload                          the work
//	At or After, Expires                   when it is due, and until when it may begin
//	Key, OnKey, MaxWait, Found             one job at a time: OnKey decides about another one
//	FreeWhenBegun, Signals                 how long the job has its Key, and whether a signal may come
//	MaxAttempts, Timeout                   how many attempts, and how long each may take
//	Lane, Priority, Meta                   its owner, its class, and tags
//	Retain, RetainPayload                  for how long it is kept after its end
type Job = driver.Job

// Attempt describes one attempt to its handler. [driver.Attempt] documents the fields:
//
//	Ref, Job, Number, Due                  the job, and the number and due time of this attempt
//	Signaled, Signal                       whether a signal came, and its payload
//	Schedule, Occurrence                   the name of its schedule, and the time of an occurrence by that
type Attempt = driver.Attempt

// Info describes a job that is kept. [driver.Info] documents the fields:
//
//	Ref, Job, State                        the job as it was added, and its state
//	Attempt, Due                           the attempts that have begun, and when the next is due
//	Worker                                 the worker that has claimed a running job, or has ended a retained one
//	LastError, Errors                      the errors of the attempts that have failed
//	Began, End                             when the last attempt of a retained job began, and when the job ended
type Info = driver.Info

// Filter selects jobs, by all of State, Kind, Lane and Meta. The zero Filter selects all that
// are kept. See [driver.Filter].
type Filter = driver.Filter

// OnKey is the action of Add if a job waits under the key of the new one. If that is due, the
// new job goes into it: see [driver.OnKey].
type OnKey = driver.OnKey

// The actions of Add. Replace and Later end the waiting job, unless it is due, as Cancel does,
// and store the new one in the same commit. So if they overlap with a claim, one wins, and the Ref is
// that of the new job.
const (
	Refuse  = driver.KeyRefuse  // Add returns ErrExists.
	Replace = driver.KeyReplace // The new job replaces the other, or goes into it if that is due.
	Later   = driver.KeyLater   // The same, due no later than MaxWait after the first Add: a debounce.
	Keep    = driver.KeyKeep    // The other stays, and Add returns its Ref: a throttle.
)

// Priority is one of three classes: a worker begins the due jobs of a higher class first.
// [driver.Priority] has the details.
type Priority = driver.Priority

// The classes.
const (
	Low    = driver.Low
	Normal = driver.Normal
	High   = driver.High
)

// Limit bounds how many jobs run at once, and how many begin in a second, in all processes
// together. See [Queue.SetLimit]. [driver.Limit] documents the fields:
//
//	Kind, PerLane                          the jobs, and whether each lane counts separately
//	Running                                how many may run at once
//	Rate, Burst                            how many may be claimed in a second
type Limit = driver.Limit

// Pausable selects jobs to pause: a Kind, a Lane, or a Lane of a Kind. The zero value
// selects all jobs of the queue. See [driver.Pausable].
type Pausable = driver.Pausable

// Pause is a pause of a queue, as [Queue.Paused] returns it. [driver.Pause] documents the fields:
//
//	Pausable (Kind, Lane)                  the jobs
//	Since, Until                           when it was set, and when it ends; zero: until Resume
type Pause = driver.Pause

// Backlog describes the waiting jobs of an engine. [driver.Backlog] documents the fields:
//
//	Waiting, Kinds                         the number of all, and the kinds of those that are due
type Backlog = driver.Backlog

// Overdue is a kind with jobs that are due and wait. [driver.Overdue] documents the fields:
//
//	Kind, Jobs, Oldest, Due, Handled       the number of jobs, the first of them, and whether a worker has a handler
type Overdue = driver.Overdue

// Unhandled is a kind with a due job, for which no worker has a handler. [driver.Unhandled]
// documents the fields:
//
//	Kind, Oldest, Due                      the job that is longest due, and its due time
type Unhandled = driver.Unhandled

// Ref is the engine's address of a job. It stays the same over attempts, reschedules and
// restarts. So a handler can tell by it whether it has done a job before. It is text that
// may be stored; only the engine knows what is in it.
type Ref = driver.Ref

// State is the state of a job that is kept.
type State = driver.State

// The states of a job. Only a job with a Retain is kept as Done or Canceled; another one is removed
// when it is done or canceled. [State.Ended] reports whether a job has ended.
const (
	Waiting  = driver.Waiting       // Waits for its time, for its next attempt, or for a worker.
	Running  = driver.Running       // A worker has claimed it.
	Dead     = driver.Dead          // Its last attempt failed, or its handler discarded it.
	Done     = driver.StateDone     // Its handler returned nil, a newer job of its key superseded it, or MissedSkip or MissedEach left it out.
	Canceled = driver.StateCanceled // Cancel ended it, while it waited or ran.
)

// Failure is an attempt that has failed: At is when it ended, by the engine's clock, Attempt its
// number, and Error what its handler returned.
type Failure = driver.Failure

// The largest size of the parts of a [Job] that a [Middleware] may add to.
const (
	MaxPayload = driver.MaxPayload // 256 KiB
	MaxMeta    = driver.MaxMeta    // 4 KiB, all names and values together.
)

// Errors to test for with errors.Is.
var (
	// ErrInvalid is returned for a job, key, time, limit or Ref that is not valid. The
	// message says what is wrong. Nothing was written.
	ErrInvalid = driver.ErrInvalid

	// ErrExists is returned when another job has the key.
	ErrExists = driver.ErrExists

	// ErrNotFound is returned when no job has the Ref, or the key. The job may have ended
	// long ago.
	ErrNotFound = driver.ErrNotFound

	// ErrEnded wraps ErrNotFound. It is returned by [Queue.Await] when the job has ended and is not
	// kept, so that nothing tells how it ended.
	ErrEnded = driver.ErrEnded

	// ErrLeaseLost is returned when a worker was silent for longer than its lease, so that
	// another one may have its jobs. It is the cause with which the handlers' contexts end
	// then.
	ErrLeaseLost = driver.ErrLeaseLost

	// ErrTimeout is the cause with which a handler's context ends when the attempt has taken
	// longer than the job's Timeout.
	ErrTimeout = driver.ErrTimeout

	// ErrCanceled is the cause with which a handler's context ends when [Queue.CancelRunning]
	// was called for its job.
	ErrCanceled = driver.ErrCanceled

	// ErrExpired is the error of a job that had not begun when it expired.
	ErrExpired = driver.ErrExpired

	// ErrUncertain is returned when the engine's answer was lost. The request may have been
	// carried out.
	ErrUncertain = driver.ErrUncertain

	// ErrFull is returned when the store is full. It accepts jobs again when others have
	// ended.
	ErrFull = driver.ErrFull

	// ErrReadOnly is returned when the store takes no writes at present, such as a standby server. The
	// request was not carried out: repeat the call later.
	ErrReadOnly = driver.ErrReadOnly

	// ErrStorage is returned when the store is damaged, or cannot be written.
	ErrStorage = driver.ErrStorage

	// ErrLocked is returned when another process, or another engine of this one, has the
	// directory open. The message says which.
	ErrLocked = driver.ErrLocked

	// ErrWentBack is returned by Queue.Health after the store went back, until the worker and
	// the store agree on the claims of the worker: the store lacks what it had stored last, as
	// after a restore, or a failover to a standby that lags.
	ErrWentBack = driver.ErrWentBack

	// ErrVersion is returned when a newer version of the engine than this program's has made
	// or migrated the store.
	ErrVersion = driver.ErrVersion

	// ErrClosed is returned when the Queue or the Engine is closed, or when the connection of
	// the Engine is closed for good.
	ErrClosed = driver.ErrClosed
)
