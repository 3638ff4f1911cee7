package driver

import "errors"

// Errors to test for with errors.Is.
var (
	// ErrInvalid: the job, key, time, limit or Ref is not valid. The message says what is
	// wrong. Nothing was written.
	ErrInvalid = errors.New("durable: invalid")

	// ErrExists: another job has the key.
	ErrExists = errors.New("durable: key exists")

	// ErrNotFound: no job has this Ref, or this key; it may have ended long ago.
	ErrNotFound = errors.New("durable: not found")

	// ErrLeaseLost: the worker was silent for longer than its lease, so another one may
	// have the job. If a handler's context ends for this reason, this is its cause.
	ErrLeaseLost = errors.New("durable: lease lost")

	// ErrTimeout is the cause with which a handler's context ends when the attempt has taken
	// longer than the job's Timeout.
	ErrTimeout = errors.New("durable: the attempt has taken longer than its Timeout")

	// ErrCanceled is the cause with which a handler's context ends when [Queue.CancelRunning]
	// was called for its job.
	ErrCanceled = errors.New("durable: canceled by CancelRunning")

	// ErrExpired is the error of a job that had not begun when it expired.
	ErrExpired = errors.New("durable: expired before it began")

	// ErrChanged: a schedule, or the limits and pauses, were changed meanwhile. The Queue
	// reads them again and repeats the call.
	ErrChanged = errors.New("durable: changed by another call")

	// ErrUncertain: the engine's answer was lost. The request may have been carried out.
	ErrUncertain = errors.New("durable: outcome uncertain")

	// ErrFull: the store has no room. It accepts jobs again when others have ended.
	ErrFull = errors.New("durable: store is full")

	// ErrStorage: the store is damaged, or cannot be written.
	ErrStorage = errors.New("durable: storage failed")

	// ErrLocked: another process, or another engine of this one, has the directory open. The
	// message says which.
	ErrLocked = errors.New("durable: store is locked")

	// ErrVersion: what is stored was made, or migrated, by a newer version of the engine
	// than this program has.
	ErrVersion = errors.New("durable: stored by a newer version")

	// ErrClosed: the Queue or the Engine is closed, or the connection of the Engine is, for
	// good.
	ErrClosed = errors.New("durable: closed")
)
