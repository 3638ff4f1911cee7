package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Attempt is what a handler is told.
type Attempt struct {
	Ref    Ref
	Job    Job       // At is when it was first due; After is zero
	Number int       // of this attempt, from 1
	Due    time.Time // of this attempt

	// Of an occurrence of a schedule: the name of that, and the time by it, which is earlier
	// than that of the job if there is a Jitter, or it was missed.
	Schedule   string
	Occurrence time.Time

	completion *completion // for Complete
}

// Handle sets what runs the jobs of a kind. It is called before Run, and panics after,
// and on an empty kind, a nil handler, and a kind that has one already.
//
// If the handler returns nil, the job is done. If it returns an error, the attempt has
// failed, and the job is due again after the backoff. [RetryAfter] sets another time,
// [Discard] ends the job, and [Snooze] asks for another attempt without counting this one. When MaxAttempts have begun and the last has failed, the job is
// dead. A panic is a failure like any other, and so is a handler that ends its goroutine,
// and an error or a backoff whose own code panics.
//
// The handler's context ends with [ErrLeaseLost] as cause when the worker's lease is
// lost, because another worker may have the job then; and with [ErrTimeout] when the
// attempt has taken longer than the job's Timeout. It ends with [ErrClosed] when the
// Queue is closed, and with the error of Run when that ends with one. It does not end
// with Run's context: Run waits for the handler.
//
// A job may run again although its handler has returned nil, if the process dies before
// that is written down. So handlers must be idempotent, by Ref: see package crashtest. With PostgreSQL a handler
// can have the end of its job be a part of its own transaction: see CompleteTx there.
func (q *Queue) Handle(kind string, h Handler) {
	if kind == "" {
		panic("durable: Handle: empty kind")
	}
	if h == nil {
		panic(fmt.Sprintf("durable: Handle(%q): nil handler", kind))
	}
	h = q.wrapHandler(kind, h)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running {
		panic(fmt.Sprintf("durable: Handle(%q): after Run", kind))
	}
	if q.env.handlers[kind] != nil {
		panic(fmt.Sprintf("durable: Handle(%q): it has a handler", kind))
	}
	q.env.handlers[kind] = h
}

// HandleJSON is Handle for payloads that are a T in JSON. If a payload is anything else,
// its job is dead at once.
func HandleJSON[T any](q *Queue, kind string, h func(context.Context, *Attempt, T) error) {
	if h == nil {
		panic(fmt.Sprintf("durable: HandleJSON(%q): nil handler", kind))
	}
	q.Handle(kind, func(ctx context.Context, a *Attempt) error {
		var v T
		if err := json.Unmarshal(a.Job.Payload, &v); err != nil {
			return Discard(fmt.Errorf("durable: the payload of a %q is not what its handler takes: %w", a.Job.Kind, err))
		}
		return h(ctx, a, v)
	})
}

// errGoexit is the failure of a handler that ended its goroutine.
var errGoexit = errors.New("durable: the handler has called runtime.Goexit")

// call runs the handler and passes its error on, once, however it ends. Deferred, since
// plain code is not reached after runtime.Goexit.
func call(ctx context.Context, h Handler, a *Attempt, ended func(error)) {
	err := errGoexit
	defer func() {
		defer func() { ended(err) }() // also if the methods of what it panics with do not return
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n\n%s", v, debug.Stack())
		}
	}()
	err = h(ctx, a)
}

// maxErrorText is how much of a handler's error is kept.
const maxErrorText = 4 << 10

// undecided returns what becomes of a job whose handler has returned err, if decide does
// not come to say more.
func (e *env) undecided(h *Held, attempt int, err error) Outcome {
	if err == nil {
		return Outcome{Held: h, End: Done}
	}
	out := Outcome{Held: h, End: Again, At: clip(e.now().Add(exponential(attempt)))}
	out.Error = fmt.Sprintf("durable: the handler has returned a %T, whose methods do not return", err)
	if attempt >= h.Record.Job.MaxAttempts {
		out.End = Buried
	}
	return out
}

// decide completes the outcome of an attempt. The methods of err and the backoff are the
// user's: if they panic, that is what the error says.
func (e *env) decide(out *Outcome, attempt int, err error) {
	if err == nil {
		return
	}
	var after *retryLater
	var snooze *snoozed
	if failed := protect(func() { // nil pointers in an error are usual enough
		out.Error = errorText(err)
		if errors.As(err, &snooze) {
			return
		}
		if errors.As(err, new(*discarded)) {
			out.End = Buried
		}
		errors.As(err, &after)
	}); failed != nil {
		after, snooze = nil, nil
		out.Error = errorText(fmt.Errorf("durable: the handler has returned a %T, whose methods fail: %w", err, failed))
	}
	switch {
	case snooze != nil:
		out.End, out.Uncounted, out.Error = Again, true, out.Held.Record.LastError
		out.At = clip(e.now().Add(snooze.after))
	case out.End == Buried:
	case after != nil:
		out.At = clip(e.now().Add(after.after))
	default:
		if failed := protect(func() { out.At = clip(e.now().Add(max(0, e.backoff(attempt)))) }); failed != nil {
			out.Error = errorText(fmt.Errorf("%s; durable: the backoff function fails: %w", out.Error, failed))
		}
	}
}

// protect calls a function of the user's. If it panics that is the error.
func protect(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n\n%s", v, debug.Stack())
		}
	}()
	f()
	return nil
}

func clip(t time.Time) time.Time {
	if t = wholeMicros(t); t.Before(farthest) {
		return t
	}
	return farthest.Add(-time.Microsecond)
}

// errorText is what is kept of an error: text that every engine can store. A database
// refuses bytes that are not UTF-8 and NUL, and the end of an attempt must not fail for
// its error's text.
func errorText(err error) string {
	s := err.Error()
	s = s[:min(len(s), maxErrorText)]
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// The bounds of the earlier errors that are kept. A record stays small however often its job fails.
const (
	maxFailures    = 10
	maxFailureText = 512
)

// note adds the error of an attempt, which has ended at a time, to those of its job.
func note(o *Outcome, attempt int, now time.Time) {
	r := &o.Held.Record
	o.Errors = r.Errors
	if o.End == Done || o.Uncounted && o.End == Again { // snoozed
		return
	}
	f := Failure{At: wholeMicros(now).UTC(), Attempt: min(attempt, r.Job.MaxAttempts), Error: failureText(o.Error)}
	if o.Uncounted {
		f.Attempt = 0 // it has expired
	}
	before := r.Errors
	if len(before) == 0 && r.LastError != "" {
		before = []Failure{{Error: failureText(r.LastError)}}
	}
	o.Errors = append(slices.Clone(before[max(0, len(before)-maxFailures+1):]), f)
}

func failureText(s string) string {
	s, _, _ = strings.Cut(s, "\n\n") // without the stack of a panic
	return strings.ToValidUTF8(s[:min(len(s), maxFailureText)], "")
}
