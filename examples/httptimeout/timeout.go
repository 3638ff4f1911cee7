package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// errTimeout is the cause of the end of a request's context when the request took too
// long.
var errTimeout = errors.New("the request took too long")

// Timeout returns a handler that gives each request a deadline, d after its arrival, and
// has next serve it. The deadline is in the request's context and waits on w. If the
// context already has an earlier deadline, that one stays.
//
// Timeout aborts nothing. A handler learns from r.Context() that time is up, and has to
// return. A query or a request with that context
// ends by itself. A handler that ignores the context goes on for as long as it likes, and the
// client waits. The deadline ends no read of the body and no write to a slow client: http.Server
// has time limits for these.
//
// If the handler returns after the deadline and has not begun a response, the response is
// 503 Service Unavailable. A response that it has begun stands, late or not. So a handler
// may answer a late request itself, in its own words. If the client has gone away, nobody
// is answered.
//
// The context is one of the wheel's below the request's own. As long as nobody asks it for
// Done, it takes half the time of package context's, and about the same time when somebody does.
// A whole server takes no more processor time than with package context. A handler that
// derives a context for each query of its own gains nothing: that costs 1.1. A
// function on the wheel (TimingWheel.Schedule) that cancels a context.WithCancelCause would
// be cheaper there. But such a context ends with Canceled and has no Deadline, and what a
// handler calls goes by both.
//
// http.TimeoutHandler answers at the deadline, whatever the handler does. For that it
// runs the handler on a goroutine of its own, and holds the response back until it is
// complete: it cannot stream.
func Timeout(w *timingwheel.TimingWheel, d time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := w.WithTimeoutCause(r.Context(), d, errTimeout)
		defer cancel() // takes the deadline off the wheel
		resp := &response{ResponseWriter: rw}
		next.ServeHTTP(resp, r.WithContext(ctx))
		if !resp.begun && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			http.Error(rw, "timed out", http.StatusServiceUnavailable)
		}
	})
}

// response knows whether the handler has begun to answer. For the methods that it lacks,
// http.ResponseController finds the original through Unwrap.
type response struct {
	http.ResponseWriter
	begun bool
}

func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *response) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols { // the others announce a response
		r.begun = true
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *response) Write(p []byte) (int, error) {
	r.begun = true
	return r.ResponseWriter.Write(p)
}

// Flush sends the header, and so begins the response.
func (r *response) Flush() { _ = r.FlushError() } // as with net/http's own, a failure shows in the next Write

// FlushError is the Flush that http.ResponseController looks for.
func (r *response) FlushError() error {
	err := http.NewResponseController(r.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		r.begun = true
	}
	return err
}

// Hijack takes the connection over, and with it any response.
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.begun = true
	}
	return conn, buf, err
}
