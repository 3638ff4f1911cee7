package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A server does not answer a request that it denies. It sends the connection an error, and the
// caller would wait for an answer in vain. So a caller registers its subject, and fails if the
// server denies it.
//
// The error names the subject, and not the request: all callers that wait for one subject fail. That
// is right, as the user of the connection has no right to it, whoever asks.

// Denials holds the callers that wait for answers on a connection. Mu guards what is below it: the
// connection's goroutine tells of a denial while callers come and go. To deny a caller only ends
// its context, so that is done under the lock. The connection's own lock is never waited for under it.
type Denials struct {
	NC    *nats.Conn
	inbox string // the prefix of the subjects of answers

	mu      sync.Mutex
	callers map[*caller]bool
	deaf    error  // not nil: no answer comes
	since   uint64 // the number of reconnects when deaf was set; after another one the server sends the denial again
}

type caller struct {
	concerns func(subject string) bool
	deny     context.CancelCauseFunc
}

// WatchDenials calls report for each error of a connection, and then the handler that was set before.
// Nothing takes its handler out again: another one may have been set around it. Each Connect and
// Backup on one connection adds one, which keeps its Denials until the connection is closed.
func WatchDenials(nc *nats.Conn) *Denials {
	d := &Denials{NC: nc, callers: map[*caller]bool{}, inbox: cmp.Or(nc.Opts.InboxPrefix, "_INBOX") + "."}
	next := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		d.report(err)
		if next != nil {
			next(nc, sub, err)
		}
	})
	d.report(nc.LastError()) // the client subscribed to its answers before
	return d
}

// deniedSubject matches the subject in a server's error. The client has no other form of it; an
// error that does not match is no denial of a subject, and is passed over: its caller waits for its
// timeout.
var deniedSubject = regexp.MustCompile(`for (Publish|Subscription) to "([^"]+)"`)

// report fails the callers that an error concerns. A client subscribes once to the answers to
// all its requests, so if that is denied, no caller gets an answer.
func (d *Denials) report(err error) {
	if !IsDenial(err) {
		return
	}
	found := deniedSubject.FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	err = fmt.Errorf("jetstream: %w", err)
	deaf := found[1] == "Subscription" && strings.HasPrefix(found[2], d.inbox)
	var since uint64
	if deaf {
		err, since = &deafError{err}, d.NC.Stats().Reconnects // it waits for the connection's lock: so without mu
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if deaf {
		d.deaf, d.since = err, since
	}
	for c := range d.callers {
		if deaf || found[1] == "Publish" && c.concerns(found[2]) {
			c.deny(err)
		}
	}
}

// deafError is the error of a request that may have been carried out, but whose answer is denied. For a
// write that is uncertain, and not refused; see deniedWrite.
type deafError struct{ error }

func (e *deafError) Unwrap() error { return e.error }

// During returns a context that ends when the server denies a subject that concerns the caller,
// until stop is called. A denial is not remembered, so that a right which the user gets later is
// found by the next request. That of all answers is, until the next reconnect: the server said so
// once, when the client subscribed, and each request after that would wait in vain.
func (d *Denials) During(ctx context.Context, concerns func(subject string) bool) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &caller{concerns, cancel}
	d.mu.Lock()
	defer d.mu.Unlock()
	if deaf, since := d.deaf, d.since; deaf != nil {
		go func() { // Stats waits for the connection's lock, and nobody waits for that here
			if since == d.NC.Stats().Reconnects {
				cancel(deaf)
			}
		}()
	}
	d.callers[c] = true
	return ctx, func() {
		d.mu.Lock()
		delete(d.callers, c)
		d.mu.Unlock()
		cancel(nil)
	}
}

// about returns a function that matches one subject. A subject of a request has no wildcard, so to
// be equal is enough.
func about(subject string) func(string) bool {
	return func(denied string) bool { return denied == subject }
}

// APIOf returns a function that matches the requests to the server's API about a stream, whatever their
// domain and their consumer: the stream's name is a token of each.
func APIOf(stream string) func(string) bool {
	return func(denied string) bool {
		return strings.HasPrefix(denied, "$JS.") && strings.Contains(denied+".", "."+stream+".")
	}
}

// Denied returns the denial that has ended ctx, or else err.
func Denied(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); IsDenial(cause) {
		return cause
	}
	return err
}

// IsDenial reports whether the server has denied a subject to the connection's user.
func IsDenial(err error) bool { return errors.Is(err, nats.ErrPermissionViolation) }

// deniedWrite is denied for the error of a write. If the write itself was denied, nothing is
// stored. If only its answer was, nobody knows.
func deniedWrite(ctx context.Context, err error) error {
	if err != nil {
		err = Denied(ctx, err)
	}
	if errors.As(err, new(*deafError)) {
		return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	return err
}

// IsLost reports whether the answer to a write was lost, so that asking again may bring one.
func IsLost(err error) bool { return errors.Is(err, driver.ErrUncertain) && !IsDenial(err) }
