package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/internal/stack"
)

// AnswerTimeout is for how long the answer to a question is awaited. It is longer than an election, and
// it is the last resort: follow, probe and the answers of others end most questions long before.
const AnswerTimeout = 5 * time.Second

// Conn is a connection none of whose calls outlasts its context.
//
// A nats.Conn holds a lock while it writes, and a write to a peer that reads nothing lasts
// until it is given up, by default for a minute; to a server within the process, for ever.
// Each other call waits for that lock, whatever its context says. So a call runs on a
// goroutine of its own, and is left behind when its context or the engine ends. That costs
// one to four microseconds.
//
// It has no lock. Its numbers are atomic, since calls of any goroutine read them, and only the
// goroutine of follow sets unanswerable. It never closes the connection, which is the caller's.
type Conn struct {
	NC    *nats.Conn
	Ended context.Context // with the engine; its cause is the error of all later questions
	stuck atomic.Int64    // calls of post that were left behind and have not returned

	unanswerable atomic.Pointer[context.Context] // ends when no answer can come any more to a question of now; see follow

	losses  atomic.Int64 // how often the connection was lost
	payload atomic.Int64 // the max_payload of the server; a question to the connection may wait for its lock
	probing atomic.Bool
}

// NewConn starts one goroutine, which returns when ended is, or when the connection is closed for good.
func NewConn(nc *nats.Conn, ended context.Context) *Conn {
	c := &Conn{NC: nc, Ended: ended}
	c.payload.Store(nc.MaxPayload())
	c.follow()
	return c
}

// follow ends what waits for an answer when the connection was lost and was made anew a while ago. The
// answer comes no more, unless another server has the question: whoever asked finds out what became
// of it in any case. Without that each waits for its timeout, which is longer than an election, and so
// does all that shares a commit with it. Questions that came while there was no connection are sent
// over the next one. When the connection is closed for good, all that waits ends at once: package nats
// ends the requests of its own, but closes the channel of no subscription.
func (c *Conn) follow() {
	renew := func() context.CancelCauseFunc {
		ctx, cancel := context.WithCancelCause(context.Background())
		c.unanswerable.Store(&ctx)
		return cancel
	}
	lose, lost := renew(), context.CancelCauseFunc(nil) // lost: of before the connection was lost; nil while there is one
	changes := c.NC.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	go func() {
		defer c.NC.RemoveStatusListener(changes)
		for {
			select {
			case <-c.Ended.Done():
				return
			case status := <-changes:
				switch {
				case status == nats.CLOSED:
					renew() // later questions fail by themselves: a write is known not to be sent then
					err := fmt.Errorf("%w: %w", driver.ErrClosed, nats.ErrConnectionClosed)
					if lose(err); lost != nil {
						lost(err)
					}
					return
				case status == nats.RECONNECTING && lost == nil: // it is said again for each try
					c.losses.Add(1)
					lost, lose = lose, renew()
				case status == nats.CONNECTED && lost != nil:
					before := lost
					time.AfterFunc(AnswerTimeout/5, func() { before(nats.ErrDisconnected) })
					lost = nil
					c.payload.Store(c.NC.MaxPayload())
				}
			}
		}
	}()
}

// MaxPayload is how large a message may be, with its headers. It is that of the server which was
// connected last: one of a cluster may allow less than the others.
func (c *Conn) MaxPayload() int { return int(c.payload.Load()) }

// lost returns a context that ends when no answer can come any more to a question of now. Its cause is
// the error of that question.
func (c *Conn) lost() context.Context { return *c.unanswerable.Load() }

// Call calls f, and returns what it returns, or the reason why it was left behind. It also ends
// when unanswerable is closed, which may be nil.
//
// An f that is left behind runs on, maybe for a minute: so it must not touch anything that the caller
// uses again, and if it makes something that lasts, it has to undo that itself, as ask does. Its result
// goes to a channel that has room for it, so that its goroutine ends.
func Call[T any](ctx context.Context, c *Conn, unanswerable <-chan struct{}, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done, lost := make(chan result, 1), c.lost()
	doubt := time.AfterFunc(doubtAfter, c.probe)
	defer doubt.Stop()
	go func() {
		stack.Grow()
		v, err := f()
		done <- result{v, c.closed(err)}
	}()
	var none T
	select {
	case r := <-done:
		return r.v, r.err
	case <-lost.Done():
		return none, context.Cause(lost)
	case <-unanswerable:
		return none, nats.ErrDisconnected
	case <-ctx.Done():
		return none, ctx.Err()
	case <-c.Ended.Done():
		return none, context.Cause(c.Ended)
	}
}

// closed tells a connection that is closed for good, which is durable.ErrClosed, from one
// that was made anew: its requests end with the same error.
func (c *Conn) closed(err error) error {
	switch {
	case !errors.Is(err, nats.ErrConnectionClosed):
		return err
	case c.NC.IsClosed():
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	return nats.ErrDisconnected
}

// Request sends a message and returns the answer. It sends it once: only the caller knows whether a question
// may be repeated.
func (c *Conn) Request(ctx context.Context, unanswerable <-chan struct{}, m *nats.Msg) (*nats.Msg, error) {
	return Call(ctx, c, unanswerable, func() (*nats.Msg, error) { return c.NC.RequestMsgWithContext(ctx, m) })
}

// ask sends a request and returns a subscription, which unsubscribe ends. The answers come to msgs,
// whose capacity is for all of them: the client drops a message for which a channel has no room. An
// inbox of its own costs two messages to the server. The one that the client shares among its requests
// would do for none of these: it takes one message for each.
func (c *Conn) ask(ctx context.Context, api string, request any, msgs chan *nats.Msg) (*nats.Subscription, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	made := make(chan *nats.Subscription, 1)
	sub, err := Call(ctx, c, nil, func() (*nats.Subscription, error) {
		inbox := c.NC.NewInbox()
		sub, err := c.NC.ChanSubscribe(inbox, msgs)
		made <- sub
		if err != nil {
			return nil, err
		}
		return sub, c.NC.PublishRequest(api, inbox, body)
	})
	if err != nil { // the subscription may be made later, if the call was left behind
		go func() { _ = (<-made).Unsubscribe() }() // of nil it is an error
	}
	return sub, err
}

// Unsubscribe does not wait: the connection's lock may be held for a minute.
func Unsubscribe(sub *nats.Subscription) { go sub.Unsubscribe() }

// Post sends what may be lost: acknowledgments, after which a job is handed out again and its claim
// tells, and notices, which a poll finds out later. If that takes a second, it is left behind, and no
// more is sent until it has returned: some callers have many such messages.
func (c *Conn) Post(subject string, data []byte) {
	if c.stuck.Load() > 0 {
		return
	}
	done := make(chan struct{})
	go func() { _ = c.NC.Publish(subject, data); close(done) }()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		c.stuck.Add(1)
		go func() { <-done; c.stuck.Add(-1) }()
	}
}

// doubtAfter is how long a call may take until the server is pinged, and how long the server has to
// answer the ping.
const doubtAfter = 2 * time.Second

// probe makes the connection anew if the server does not answer a ping. A connection may be half
// open: the machine at its other end is gone, or its server is frozen, and nobody has said so.
// Package nats finds that out by itself after four minutes. A server that is busy answers pings all
// the same. Any number of calls may doubt at a time, and one of them pings.
func (c *Conn) probe() {
	if !c.probing.CompareAndSwap(false, true) {
		return
	}
	defer c.probing.Store(false)
	ctx, cancel := context.WithTimeout(c.Ended, doubtAfter)
	defer cancel()
	if c.NC.Status() == nats.CONNECTED && c.NC.FlushWithContext(ctx) != nil && c.Ended.Err() == nil {
		_ = c.NC.ForceReconnect() // it fails if the connection is closed for good
	}
}
