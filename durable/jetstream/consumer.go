package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// consumers are those of a worker in a partition, made and removed by name. They are
// disposable: each is made anew when it is lost, hands out again all that is there, and the
// claims tell what has ended. It hands out nothing itself.
//
// Workers share a consumer by its name, which says the bucket and the queue. So no worker
// owns one, and each must bear that another has removed it, or made it anew.
type consumers struct {
	*part
	w *worker
}

// readers are the queues that a Fetch reads. Mu guards near, and each reader in it except
// for the fields of its goroutine. The fetcher adds readers, and it and the closer remove
// them. No request is made while mu is held.
type readers struct {
	mu   sync.Mutex
	near map[spot]*reader
}

// emptied returns up to which sequence of the stream a consumer's messages have ended, 0 if it
// has more, or is not there: then its readers make it anew.
func (cs *consumers) emptied(ctx context.Context, consumer string) (last uint64, err error) {
	last, all, err := cs.ended(ctx, consumer)
	if !all {
		return 0, err
	}
	return last, err
}

// ended is the same though a consumer has more, and all says whether it has none. A
// consumer on a server that is behind, as one is that was started again, does not know the
// last messages. So the leader answers, too.
//
// It costs one request, and on several replicas one more to the leader. Without an answer
// within SilentAfter a consumer counts as one that has more: then its bucket stays open,
// and nothing is removed by its position.
func (cs *consumers) ended(ctx context.Context, consumer string) (last uint64, all bool, err error) {
	var info natsjs.ConsumerInfo
	try, cancel := context.WithTimeout(ctx, stream.SilentAfter)
	defer cancel()
	err = cs.Ask(try, "CONSUMER.INFO."+cs.Name+"."+consumer, nil, &info)
	if errors.Is(err, driver.ErrNotFound) || stream.TimedOut(ctx, err) { // its readers make it anew
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return cs.endedBy(ctx, &info)
}

// endedBy is ended by a server's answer about the consumer. It reads the first message behind the
// ack position from the leader: if there is one, the consumer has not heard of it yet.
// Only the position is used for removals, and never the number of the messages that wait.
func (cs *consumers) endedBy(ctx context.Context, info *natsjs.ConsumerInfo) (last uint64, all bool, err error) {
	last, all = info.AckFloor.Stream, info.NumPending == 0 && info.NumAckPending == 0
	if !all || cs.Replicas() == 1 {
		return last, all, nil
	}
	next, err := cs.OfLeader(ctx, map[string]any{"next_by_subj": info.Config.FilterSubject, "seq": last + 1})
	return last, err == nil && next.Seq == 0, err
}

// reader is the reading of one queue, by one goroutine at a time. Its ctx ends when the
// bucket is left, or when the queue becomes another worker's: then the goroutine ends, and
// what it has handed out is acknowledged all the same.
type reader struct {
	ctx    context.Context
	cancel context.CancelFunc
	busy   bool      // a goroutine reads
	ended  time.Time // when the last one has ended
	made   bool      // the consumer is there; for the goroutine
	again  bool      // it was lost once, so that jobs that have ended come again; for the goroutine
	got    bool      // something has come of it; for the goroutine
}

// consumerLife is how long the server keeps a consumer that nobody reads. A Fetch that fails leaves
// those of empty buckets behind, and the next one does not know of them. So it is a number of
// buckets, and not of minutes: with buckets of 250 ms, 10 minutes and a starved machine a server
// had 8,000 consumers, and did nothing else.
func (g geometry) consumerLife() time.Duration {
	return min(max(100*time.Duration(g.near)*time.Microsecond, 30*time.Second), 10*time.Minute)
}

// consumer makes a consumer of a subject, if it is not there; anew, if its server is silent.
//
// On several replicas the first try is short, since the server that is to have the consumer
// may be silent: then the consumer is removed, and the cluster chooses a server anew. With
// one replica haste is of no use, since there is no other server.
func (cs *consumers) consumer(ctx context.Context, name, filter string) error {
	since, patience := cs.Now(), stream.SilentAfter/2
	if cs.Replicas() == 1 {
		patience = stream.AnswerTimeout
	}
	for ; ; patience *= 2 {
		err := cs.createConsumer(ctx, patience, name, filter)
		if !stream.TimedOut(ctx, err) || patience >= stream.AnswerTimeout {
			return err
		}
		cs.Abandon(ctx, name, since)
	}
}

// createConsumer makes a consumer, in the memory of one server. To keep it on several
// servers would make each acknowledgment a commit, and a loss costs only that jobs are
// handed out once more. A job that is not acknowledged comes again after a lease, however
// often, since the claim decides. The bytes under way are bounded by budgets, so the number
// of jobs is not.
func (cs *consumers) createConsumer(ctx context.Context, patience time.Duration, name, filter string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return cs.Ask(ctx, "CONSUMER.CREATE."+cs.Name+"."+name+"."+filter, map[string]any{"stream_name": cs.Name, "config": natsjs.ConsumerConfig{
		Name: name, FilterSubject: filter, DeliverPolicy: natsjs.DeliverAllPolicy,
		AckPolicy: natsjs.AckExplicitPolicy, AckWait: cs.w.c.Lease, MaxAckPending: -1, MaxDeliver: -1,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: cs.consumerLife(),
	}}, nil)
}

// deleteConsumer removes a consumer, if it is there. One whose server is silent is removed,
// too, without an answer.
func (cs *consumers) deleteConsumer(ctx context.Context, name string) error {
	err := cs.RemoveConsumer(ctx, name, stream.SilentAfter)
	if errors.Is(err, driver.ErrNotFound) || stream.TimedOut(ctx, err) {
		return nil
	}
	return err
}

func farConsumer(h int64) string { return "h" + itoa(h) }
