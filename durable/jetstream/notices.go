package jetstream

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// notices are messages that no stream keeps, below TWA_<queue>. They say what others should know at
// once: limits, freed, and cancel.<worker>. A notice may be lost, doubled or late, since all of it
// is found out without notices, too, by a poll or with a heartbeat. So nobody waits for an answer
// to one.
//
// Mu guards the listeners, who are the workers of this engine whose Fetch is under way. No listener
// is called while it is held: its functions take other locks, and ask servers.
type notices struct {
	nc    *stream.Conn
	queue string

	mu        sync.Mutex
	listeners []*listener
}

// listener is a worker that hears notices. Its functions are fixed, and may be called from several
// goroutines at once, and for a moment after the Fetch has ended.
type listener struct {
	name     string
	notify   func(driver.Notice)
	recall   func()                    // requests the deferred jobs again
	canceled func(ctx context.Context) // reads the requests to cancel its claims
	receive  func(ctx context.Context, what string, data []byte)
}

// wireFreed is the form in which freed permits are published: with the sequences of the messages
// that free them, and the limits that they are of. By the sequence a process that knows a later
// taker ignores the notice.
type wireFreed struct {
	Part    int               `json:"part"`
	Permits map[string]uint64 `json:"permits"`
	Limits  []driver.LimitKey `json:"limits"`
}

// freed notifies all workers of the permits that the written groups have freed: those of other
// processes by one message for all groups, and those of this engine directly. lane returns the lane
// of a group's job.
//
// Ends without a permit publish nothing. A permit is freed by a tombstone, so a group needs no
// other sign: the one that takes a permit has data.
func (nt *notices) freed(qs *quotas, groups []stream.Group, results []stream.Result, lane func(i int) string) {
	freed, prefix := wireFreed{Part: qs.number, Permits: map[string]uint64{}}, qs.permitSubject("")
	for i, g := range groups {
		for k, w := range g {
			name, ok := strings.CutPrefix(w.Subject, prefix)
			if !ok || len(w.Data) > 0 || results[i].Err != nil {
				continue
			}
			freed.Permits[name] = results[i].First + uint64(k)
			if key, ok := limitKeyOf(name, lane(i)); ok && !slices.Contains(freed.Limits, key) {
				freed.Limits = append(freed.Limits, key)
			}
		}
	}
	if len(freed.Permits) == 0 {
		return
	}
	qs.learnFreed(freed.Permits)
	data, _ := json.Marshal(freed) // strings and numbers have no error
	nt.publish("freed", data)
	nt.notifyAll(driver.Notice{Freed: freed.Limits})
}

// noticePrefix is the prefix of the subjects of notices. It is not that of the streams, so that no
// stream stores them, and a user's rights for them can be given or left out by themselves.
func (nt *notices) noticePrefix() string { return "TWA_" + nt.queue + "." }

// publish does not wait for an answer, nor for longer than a second on a connection that is stuck.
func (nt *notices) publish(what string, data []byte) {
	nt.nc.Post(nt.noticePrefix()+what, data)
}

// notifyAll notifies the workers of this engine.
func (nt *notices) notifyAll(n driver.Notice) {
	for _, l := range nt.all() {
		l.notify(n)
	}
}

// notifyWorker notifies one worker of this engine of its canceled claims. If the worker is another
// process's, the published notice reaches it.
func (nt *notices) notifyWorker(ctx context.Context, name string) {
	for _, l := range nt.all() {
		if l.name == name {
			l.canceled(ctx)
		}
	}
}

// all returns a copy, which the caller goes through without the lock.
func (nt *notices) all() []*listener {
	nt.mu.Lock()
	defer nt.mu.Unlock()
	return slices.Clone(nt.listeners)
}

// listen passes notices to a worker, until stop is called: those of this engine directly, those of
// other processes by a subscription. Without the permission to subscribe the worker finds the same
// by its polls, later; so listen returns no error.
//
// A process may get its own notices back by the subscription. That costs a read at most, and
// changes nothing.
func (nt *notices) listen(ctx context.Context, l *listener) (stop func()) {
	if l.notify == nil {
		return func() {}
	}
	nt.mu.Lock()
	nt.listeners = append(nt.listeners, l)
	nt.mu.Unlock()
	sub, err := stream.Call(ctx, nt.nc, nil, func() (*nats.Subscription, error) {
		return nt.nc.NC.Subscribe(nt.noticePrefix()+">", func(m *nats.Msg) {
			ctx, cancel := context.WithTimeout(ctx, stream.AnswerTimeout)
			defer cancel()
			l.receive(ctx, strings.TrimPrefix(m.Subject, nt.noticePrefix()), m.Data)
		})
	})
	return func() {
		if err == nil {
			stream.Unsubscribe(sub)
		}
		nt.mu.Lock()
		defer nt.mu.Unlock()
		nt.listeners = slices.DeleteFunc(nt.listeners, func(other *listener) bool { return other == l })
	}
}
