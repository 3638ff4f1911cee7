package jetstream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A server that is frozen or cut off is silent. The others find that out after half a minute or more. Until then
// they pass on to it the questions that any server may answer, it has consumers, and clients are connected to it. So
//
//   - a question that any server may answer is asked again beside the earlier ones (soonest);
//   - a consumer whose server is silent is replaced (abandon);
//   - an answer of a leader that was deposed is not waited for (part.deposed);
//   - a connection without an answer is checked and made anew (conn.probe).

const (
	askAgain = 100 * time.Millisecond // without an answer: then the question is asked again
	maxAsked = 8                      // times is a question asked
)

// soonest returns the first answer to a question that one of several servers answers, which the
// cluster chooses by chance. It asks again when it has heard nothing for askAgain. Then the
// earlier questions still count: a server may be slow. A question that was asked 8 times has been to silent
// servers only in one of 6,000 cases, if one of three is silent.
func soonest[T any](ctx context.Context, c *client, ask func(ctx context.Context, heard *atomic.Bool) (T, error)) (T, error) {
	var heard atomic.Bool
	if c.replicas == 1 {
		return ask(ctx, &heard)
	}
	type answer struct {
		v   T
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, maxAsked)
	t := time.NewTicker(askAgain)
	defer t.Stop()
	for asked := 0; ; {
		if asked == 0 || asked < maxAsked && !heard.Swap(false) {
			asked++
			go func() {
				v, err := ask(ctx, &heard)
				answers <- answer{v, err}
			}()
		}
		select {
		case a := <-answers:
			return a.v, a.err
		case <-t.C:
		}
	}
}

const (
	silentAfter = time.Second            // a question to one certain server is not waited for any longer
	doubtful    = 300 * time.Millisecond // a request to a consumer is late by so much: it is checked whether its server is silent
	leftAfter   = 200 * time.Millisecond // a consumer was removed: then all servers know it
)

// errAbandoned is that of a request to a consumer that was removed meanwhile.
var errAbandoned = errors.New("jetstream: a consumer was removed, since its server is silent")

// abandon removes a consumer whose server is silent. It returns true if the consumer is gone, or was made anew
// since a time of the server's clock, so that what was asked of it before is lost. A new one hands out all
// jobs again, and the claims tell, as with one that was lost. Several workers may find out at the
// same time. Then one may remove the consumer that another has just made, which is no worse. If the stream's leader does not answer
// either, the connection is silent, or there is an election. A stream on one server has its consumers there.
func (s *stream) abandon(ctx context.Context, consumer string, since time.Time) bool {
	if s.replicas == 1 {
		return false
	}
	try, cancel := context.WithTimeout(ctx, silentAfter/2) // the question is asked 5 times meanwhile
	defer cancel()
	info, err := soonest(try, s.client, func(ctx context.Context, _ *atomic.Bool) (info natsjs.ConsumerInfo, err error) {
		return info, s.ask(ctx, "CONSUMER.INFO."+s.name+"."+consumer, nil, &info)
	})
	if !timedOut(ctx, err) {
		return errors.Is(err, driver.ErrNotFound) || err == nil && info.Created.After(since)
	}
	try, cancel = context.WithTimeout(ctx, silentAfter)
	defer cancel()
	if _, err := s.last(try, s.name); err != nil { // of no subject: only the answer counts
		return false
	}
	_ = s.removeConsumer(ctx, consumer, leftAfter) // the silent server would answer
	return ctx.Err() == nil
}

// removeConsumer removes a consumer. The leader of the cluster does it, and the server of the consumer answers.
func (c *client) removeConsumer(ctx context.Context, consumer string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.ask(ctx, "CONSUMER.DELETE."+c.name+"."+consumer, nil, nil)
}

// timedOut reports whether a question had no answer in its time, which ends before ctx.
func timedOut(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// reign is the time during which one server leads a stream.
type reign struct {
	of   string        // the server and the begin
	over chan struct{} // closed when it is over, and the last answers have come
}

// noteLeader notes who leads the stream, and since when.
func (c *client) noteLeader(of string) {
	was := c.reigns.Load()
	if was != nil && was.of == of || !c.reigns.CompareAndSwap(was, &reign{of, make(chan struct{})}) {
		return
	}
	if was != nil {
		time.AfterFunc(silentAfter, func() { close(was.over) })
	}
}

// deposed returns a channel that is closed a while after the server was deposed that leads the stream now. It
// answers nothing any more, and whoever waits finds out what became of a write, as when a connection was lost.
// A server that was frozen deposes the leader when it goes on.
func (c *client) deposed() <-chan struct{} {
	if r := c.reigns.Load(); r != nil {
		return r.over
	}
	return nil
}
