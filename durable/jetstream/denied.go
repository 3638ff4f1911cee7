package jetstream

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

// A server does not answer what it denies: it tells the connection, and whoever waits for
// an answer would wait in vain. So who asks says what about, and is told.

// denials are those who wait on a connection.
type denials struct {
	nc    *nats.Conn
	inbox string // what the subjects of answers begin with

	mu      sync.Mutex
	waiting map[*waiting]bool
	deaf    error  // not nil: no answer comes
	since   uint64 // reconnects when that was told; a new connection is told anew
}

type waiting struct {
	concerns func(subject string) bool
	deny     context.CancelCauseFunc
}

// watch has a connection tell of what it is denied, before it tells its user.
func watch(nc *nats.Conn) *denials {
	d := &denials{nc: nc, waiting: map[*waiting]bool{}, inbox: cmp.Or(nc.Opts.InboxPrefix, "_INBOX") + "."}
	next := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		d.tell(err)
		if next != nil {
			next(nc, sub, err)
		}
	})
	d.tell(nc.LastError()) // the client has asked for its answers before
	return d
}

// deniedSubject is how a server says what it denies.
var deniedSubject = regexp.MustCompile(`for (Publish|Subscription) to "([^"]+)"`)

// tell ends the wait of those whom an error concerns. A client subscribes once to the
// answers to all that it asks, so where that is denied nobody gets any.
func (d *denials) tell(err error) {
	if !isDenial(err) {
		return
	}
	found := deniedSubject.FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	err = fmt.Errorf("jetstream: %w", err)
	deaf := found[1] == "Subscription" && strings.HasPrefix(found[2], d.inbox)
	d.mu.Lock()
	defer d.mu.Unlock()
	if deaf {
		d.deaf, d.since = &deafError{err}, d.nc.Stats().Reconnects
		err = d.deaf
	}
	for w := range d.waiting {
		if deaf || found[1] == "Publish" && w.concerns(found[2]) {
			w.deny(err)
		}
	}
}

// deafError is of what may have been done, but whose answer is denied.
type deafError struct{ error }

func (e *deafError) Unwrap() error { return e.error }

// during returns a context that ends when something is denied that concerns its owner,
// until stop is called.
func (d *denials) during(ctx context.Context, concerns func(subject string) bool) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &waiting{concerns, cancel}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deaf != nil && d.since == d.nc.Stats().Reconnects {
		cancel(d.deaf)
	}
	d.waiting[w] = true
	return ctx, func() {
		d.mu.Lock()
		delete(d.waiting, w)
		d.mu.Unlock()
		cancel(nil)
	}
}

// about concerns itself with one subject.
func about(subject string) func(string) bool {
	return func(denied string) bool { return denied == subject }
}

// api concerns itself with what the server is asked about a stream, and told.
func api(stream string) func(string) bool {
	return func(denied string) bool {
		return strings.HasPrefix(denied, "$JS.") && strings.Contains(denied+".", "."+stream+".")
	}
}

// working concerns itself with what a worker does in a stream that nobody is told of.
// Others may add, and be denied that, in the same process.
func (p *part) working() func(string) bool {
	asked := api(p.stream)
	return func(denied string) bool {
		below, found := strings.CutPrefix(denied, p.stream+".")
		return asked(denied) || found && below != "" && strings.Contains("cwmpt", below[:1])
	}
}

// denied returns what was denied, if that is why ctx has ended, and else the error.
func denied(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); isDenial(cause) {
		return cause
	}
	return err
}

func isDenial(err error) bool { return errors.Is(err, nats.ErrPermissionViolation) }

// deniedWrite is denied for the error of a write.
func deniedWrite(ctx context.Context, err error) error {
	if err != nil {
		err = denied(ctx, err)
	}
	if errors.As(err, new(*deafError)) {
		return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	return err
}

// isLost reports whether the answer to a write was lost, so that asking again may bring one.
func isLost(err error) bool { return errors.Is(err, driver.ErrUncertain) && !isDenial(err) }
