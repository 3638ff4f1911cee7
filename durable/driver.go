package durable

import "github.com/tickwheel/tickwheel/durable/driver"

// Ref is the engine's address of a job. It stays the same over attempts, reschedules and
// restarts. So a handler can tell by it whether it has done a job before. It is text that
// may be stored; only the engine knows what is in it.
type Ref = driver.Ref

// State is the state of a job that is kept.
type State = driver.State

// The states of a job. One that is done or canceled is kept no longer.
const (
	Waiting = driver.Waiting // Waits for its time, for its next attempt, or for a worker.
	Running = driver.Running // A worker has claimed it.
	Dead    = driver.Dead    // Its last attempt failed, or its handler discarded it.
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

	// ErrStorage is returned when the store is damaged, or cannot be written.
	ErrStorage = driver.ErrStorage

	// ErrLocked is returned when another process, or another engine of this one, has the
	// directory open. The message says which.
	ErrLocked = driver.ErrLocked

	// ErrVersion is returned when a newer version of the engine than this program's has made
	// or migrated the store.
	ErrVersion = driver.ErrVersion

	// ErrClosed is returned when the Queue or the Engine is closed, or when the connection of
	// the Engine is closed for good.
	ErrClosed = driver.ErrClosed
)
