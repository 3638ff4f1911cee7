package durable

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
)

// Handle sets the handler of a kind. Call it before Run. It panics while Run is under way,
// on a kind that no job can have (see [Job]), on a nil handler, and on a kind that has a
// handler already.
//
// If the handler returns nil, the job is done. If it returns an error, the attempt has
// failed, and the job is due again after the backoff. [RetryAfter] sets another time,
// [Discard] ends the job, and [Snooze] and [Cooldown] ask for another attempt without counting this
// one. When MaxAttempts have begun and the last has failed, the job is dead. A panic
// counts as a failure, and so does a handler that ends its goroutine, and an error or a
// backoff whose code panics.
//
// The handler's context ends with [ErrLeaseLost] as cause when the worker's lease is
// lost, because another worker may have the job then; and with [ErrTimeout] when the
// attempt has taken longer than the job's Timeout. It ends with [ErrClosed] when the
// Queue is closed, and with the error of Run when that ends with one. It does not end
// with Run's context: Run waits for the handler, unless [WithGrace] bounds that.
//
// A job may run again although its handler has returned nil, if the process dies before
// the end is stored. So handlers must be idempotent, by Ref: see package crashtest. With
// PostgreSQL a handler can end its job within its own transaction: see CompleteTx there.
func (q *Queue) Handle(kind string, h Handler) {
	checkKind("Handle", kind)
	if h == nil {
		panic(fmt.Sprintf("durable: Handle(%q): nil handler", kind))
	}
	h = wrapHandler(q.middleware, kind, h)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inRun {
		panic(fmt.Sprintf("durable: Handle(%q): call Handle before Run", kind))
	}
	if q.handlers[kind] != nil {
		panic(fmt.Sprintf("durable: Handle(%q): the kind has a handler already", kind))
	}
	q.handlers[kind] = func(ctx context.Context, a *attempt.Attempt) error {
		return h(ctx, driver.NewAttempt(a.Delivery, a.Number, a.Occurrence, a.Complete))
	}
}

// AddJSON is [Queue.Add] of a job whose payload is v in JSON, for a handler of [HandleJSON].
// [ErrInvalid]: v cannot be encoded, or j has a Payload. For AddMany and AddTx call
// json.Marshal.
func AddJSON(ctx context.Context, q *Queue, j Job, v any) (Ref, error) {
	if j.Payload != nil {
		return "", fmt.Errorf("durable: AddJSON: %w: the job of kind %.200q has a Payload", ErrInvalid, j.Kind)
	}
	payload, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("durable: AddJSON: %w: the payload of kind %.200q: %w", ErrInvalid, j.Kind, err)
	}
	j.Payload = payload
	return q.Add(ctx, j)
}

// HandleJSON is [Queue.Handle] for payloads that are a T in JSON, as [AddJSON] stores them. If
// a payload is anything else, its job is dead at once.
func HandleJSON[T any](q *Queue, kind string, h func(context.Context, *Attempt, T) error) {
	if h == nil {
		panic(fmt.Sprintf("durable: HandleJSON(%q): nil handler", kind))
	}
	q.Handle(kind, func(ctx context.Context, a *Attempt) error {
		var v T
		if err := json.Unmarshal(a.Job.Payload, &v); err != nil {
			return Discard(fmt.Errorf("durable: the payload is not the JSON that the handler of %q takes: %w", a.Job.Kind, err))
		}
		return h(ctx, a, v)
	})
}
