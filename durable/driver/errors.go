package driver

import (
	"errors"
	"fmt"
)

// Errors to test for with errors.Is.
var (
	// ErrInvalid is returned for a job, key, time, limit or Ref that is not valid. The
	// message says what is wrong. Nothing was written.
	ErrInvalid = errors.New("durable: invalid")

	// ErrExists is returned when another job has the key.
	ErrExists = errors.New("durable: key exists")

	// ErrNotFound is returned when no job has the Ref, or the key. The job may have ended
	// long ago.
	ErrNotFound = errors.New("durable: not found")

	// ErrEnded wraps ErrNotFound. It is returned when the job has ended and is not kept: it was done,
	// canceled or replaced under its key, its Retain or retention has ended, or Delete removed it.
	ErrEnded = fmt.Errorf("%w: the job has ended, and is not kept", ErrNotFound)

	// ErrLeaseLost is returned when a worker was silent for longer than its lease, so that
	// another one may have its jobs. It is the cause with which the handlers' contexts end
	// then.
	ErrLeaseLost = errors.New("durable: lease lost")

	// ErrTimeout is the cause with which a handler's context ends when the attempt has taken
	// longer than the job's Timeout.
	ErrTimeout = errors.New("durable: the attempt has taken longer than its Timeout")

	// ErrCanceled is the cause with which a handler's context ends when Queue.CancelRunning
	// was called for its job.
	ErrCanceled = errors.New("durable: canceled by CancelRunning")

	// ErrExpired is the error of a job that had not begun when it expired.
	ErrExpired = errors.New("durable: expired before it began")

	// ErrChanged is returned when a schedule, or the limits and pauses, were changed since
	// they were read. The Queue reads them again and repeats the call.
	ErrChanged = errors.New("durable: changed by another call")

	// ErrUncertain is returned when the engine's answer was lost. The request may have been
	// carried out.
	ErrUncertain = errors.New("durable: outcome uncertain")

	// ErrFull is returned when the store is full. It accepts jobs again when others have
	// ended.
	ErrFull = errors.New("durable: store is full")

	// ErrReadOnly is returned when the store takes no writes at present, such as a standby server. The
	// request was not carried out.
	ErrReadOnly = errors.New("durable: store is read-only")

	// ErrStorage is returned when the store is damaged, or cannot be written.
	ErrStorage = errors.New("durable: storage failed")

	// ErrLocked is returned when another process, or another engine of this one, has the
	// directory open. The message says which.
	ErrLocked = errors.New("durable: store is locked")

	// ErrWentBack is returned by Queue.Health after the store went back, until the worker and
	// the store agree on the claims of the worker: the store lacks what it had stored last, as
	// after a restore, or a failover to a standby that lags.
	ErrWentBack = errors.New("durable: the store went back")

	// ErrVersion is returned when a newer version of the engine than this program's has made
	// or migrated the store.
	ErrVersion = errors.New("durable: stored by a newer version")

	// ErrClosed is returned when the Queue or the Engine is closed, or when the connection of
	// the Engine is closed for good.
	ErrClosed = errors.New("durable: closed")
)
