package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// PullRequest asks a consumer for messages. It is used up by Batch of them, or by as many as have
// MaxBytes together, of which the server counts subjects and headers, too. Expires ends it with
// less; NoWait, with the messages that are there now.
type PullRequest struct {
	Batch    int           `json:"batch"`
	MaxBytes int           `json:"max_bytes"`
	NoWait   bool          `json:"no_wait,omitempty"`
	Expires  time.Duration `json:"expires,omitempty"`

	Left <-chan struct{} `json:"-"` // Pull ends when it is closed: by then the consumer was removed. May be nil.
}

// Pull asks a consumer, and hands on what comes as it comes, many at a time when they come
// close together. It does so to the end though ctx may have ended: messages on their way
// would be missed until the lease has ended. It returns how many came.
//
// Each is called on this goroutine, without a lock, and not for messages of before the stream went
// back, which count all the same. No error takes a message back that each was given, so an error
// is returned only if nothing came, or if the consumer is gone. A request costs three messages to
// the server (Conn.ask), however many come back.
//
// The server does not say that it is silent. So a request that is late is doubted, and the consumer
// looked after by another goroutine, while this one goes on to wait: a server that is slow is
// usual, and its messages are on their way.
func (s *Stream) Pull(consumer string, r PullRequest, each func([]*nats.Msg)) (got int, err error) {
	msgs := make(chan *nats.Msg, r.Batch+8) // room for all that the server sends: the batch, and the messages that end it
	lost, backs := s.Conn.lost(), s.Backs()
	ctx, cancel := context.WithTimeout(s.Conn.Ended, r.Expires+AnswerTimeout)
	defer cancel()
	sub, err := s.Conn.ask(ctx, s.API+"CONSUMER.MSG.NEXT."+s.Name+"."+consumer, r, msgs)
	if err != nil {
		return 0, err
	}
	defer Unsubscribe(sub)
	silence := time.NewTimer(r.Expires + AnswerTimeout)
	defer silence.Stop()
	doubt, gone, since := time.NewTimer(r.Expires+doubtful), make(chan bool), s.Now()
	defer doubt.Stop()
	bytes := 0
	for over := false; !over; {
		select {
		case m := <-msgs:
			var some []*nats.Msg
			some, over, err = collect(m, msgs)
			for _, m := range some {
				bytes += m.Size()
			}
			if got += len(some); len(some) > 0 && s.Backs() == backs { // else they come again, by other sequences
				each(some)
			}
			// The server says nothing at the end of a request of which nothing is left.
			over = over || got >= r.Batch || bytes >= r.MaxBytes
			silence.Reset(r.Expires + AnswerTimeout)
			doubt.Reset(r.Expires + doubtful)
		case <-lost.Done():
			over = true
		case <-r.Left:
			over = true
		case <-doubt.C:
			go func() {
				select {
				case gone <- s.Abandon(ctx, consumer, since):
				case <-ctx.Done():
				}
			}()
		case is := <-gone:
			if over = is; is {
				err = ErrAbandoned
			}
		case <-silence.C:
			// It was lost, or its end was. Patience is better here than haste: what is sent
			// to one who has gone away comes again only after the lease.
			over = true
		}
	}
	if got > 0 && err != ErrAbandoned {
		err = nil // the next request tells
	}
	return got, err
}

// ErrTooLarge says that the next message does not fit into a request. It stays the next one: the
// caller asks again for more bytes.
var ErrTooLarge = errors.New("jetstream: a message is larger than the requested size")

// collect adds to a message those that are there already, up to the one that ends the request. So a
// full queue is handed on in a few large parts, for each of which a worker takes its lock once, and
// a job that comes alone waits for no other.
func collect(m *nats.Msg, msgs <-chan *nats.Msg) (some []*nats.Msg, over bool, err error) {
	for {
		if status := m.Header.Get("Status"); status == "" {
			some = append(some, m)
		} else if over, err = ending(status, m.Header.Get("Description")); over {
			return some, true, err
		}
		select {
		case m = <-msgs:
		default:
			return some, false, nil
		}
	}
}

// ending tells what ends a request: that there is no more, that the next does not fit, or an error.
// One status stands for several ends, which only the description tells apart.
func ending(status, description string) (over bool, err error) {
	switch {
	case status == "100": // a heartbeat
		return false, nil
	case status == "404", status == "408", status == "409" && strings.Contains(description, "Batch Completed"):
		return true, nil
	case status == "409" && strings.Contains(description, "Exceeds MaxBytes"):
		return true, ErrTooLarge
	case status == "503":
		return true, nats.ErrNoResponders
	}
	return true, fmt.Errorf("jetstream: fetching: %s %s", status, description)
}

// RefusedConsumer notes that the server makes no more consumers: jobs in that queue wait. An error
// that may end soon is not noted, nor that the consumer is gone, since then it is made anew.
func (s *Stream) RefusedConsumer(err error) {
	if refusal, is := errors.AsType[*apiError](err); !is || !IsRefusal(refusal) || refusal.ErrCode == codeNoConsumer {
		return
	}
	s.mu.Lock()
	s.consumer, s.failed = fmt.Errorf("jetstream: stream %s: due jobs wait, since a consumer cannot be made: %w", s.Name, err), time.Now()
	s.mu.Unlock()
}

// A silent server holds up the jobs of its consumers for about a second: for doubtful, half of
// SilentAfter, and leftAfter. A shorter doubt would ask for the consumers of a busy server at each
// request, and each such question is one more for it to answer.
const (
	doubtful  = 300 * time.Millisecond // a request to a consumer is late by so much: it is checked whether its server is silent
	leftAfter = 200 * time.Millisecond // a consumer was removed: then all servers know it
)

// ErrAbandoned is that of a request to a consumer that was removed meanwhile.
var ErrAbandoned = errors.New("jetstream: a consumer was removed, since its server is silent")

// Abandon removes a consumer whose server is silent. It returns true if the consumer is gone, or was
// made anew since a time of the server's clock, so that earlier requests to it are lost. A new one
// hands out all jobs again, and the claims tell, as with one that was lost.
//
// First it asks for the consumer, a question that only its server answers, and then the stream's
// leader. If that does not answer either, the connection is silent, or there is an election: the
// consumer stays. A stream on one server has its consumers there, so nothing could be made
// elsewhere.
//
// Several workers may find out at the same time. Then one may remove the consumer that another has just
// made, which is no worse: its maker finds it gone, and makes one more.
func (s *Stream) Abandon(ctx context.Context, consumer string, since time.Time) bool {
	if s.Replicas() == 1 {
		return false
	}
	try, cancel := context.WithTimeout(ctx, SilentAfter/2) // 5 questions meanwhile
	defer cancel()
	info, err := soonest(try, s.Replicas(), func(ctx context.Context, _ *atomic.Bool) (info natsjs.ConsumerInfo, err error) {
		return info, s.Ask(ctx, "CONSUMER.INFO."+s.Name+"."+consumer, nil, &info)
	})
	if !TimedOut(ctx, err) {
		return errors.Is(err, driver.ErrNotFound) || err == nil && info.Created.After(since)
	}
	try, cancel = context.WithTimeout(ctx, SilentAfter)
	defer cancel()
	if _, err := s.Last(try, s.Name); err != nil { // of no subject: only the answer counts
		return false
	}
	_ = s.RemoveConsumer(ctx, consumer, leftAfter) // the silent server would answer
	return ctx.Err() == nil
}
