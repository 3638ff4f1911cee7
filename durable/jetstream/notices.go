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

// notices are messages that no stream keeps, below TWA_<queue>. They say what others should know at once: limits, freed,
// and cancel.<worker>. All of it is found out without them, too, but later. Mu guards the listeners, who are the workers
// of this engine whose Fetch is under way; none is called while it is held.
type notices struct {
	nc    *stream.Conn
	queue string

	mu        sync.Mutex
	listeners []*listener
}

// listener is a worker that hears notices.
type listener struct {
	name     string
	notify   func(driver.Notice)
	recall   func()                    // has the deferred jobs handed out again
	canceled func(ctx context.Context) // reads the requests to cancel its claims
	receive  func(ctx context.Context, what string, data []byte)
}

// wireFreed is the form in which freed permits are published: with the sequences of the
// messages that free them, and the limits that they are of.
type wireFreed struct {
	Part    int               `json:"part"`
	Permits map[string]uint64 `json:"permits"`
	Limits  []driver.LimitKey `json:"limits"`
}

// freed notifies all workers of the permits that the written groups have freed. lane
// returns the lane of a group's job.
func (nt *notices) freed(qs *quotas, groups []stream.Group, results []stream.Result, lane func(i int) string) {
	freed := wireFreed{Part: qs.number, Permits: map[string]uint64{}}
	for i, g := range groups {
		if results[i].Err != nil {
			continue
		}
		for name, at := range permitsLeft(&qs.subjects, g, results[i].First) {
			freed.Permits[name] = at
			if key, ok := limitKeyOf(name, lane(i)); ok && !slices.Contains(freed.Limits, key) {
				freed.Limits = append(freed.Limits, key)
			}
		}
	}
	if len(freed.Permits) == 0 {
		return
	}
	qs.learnFreed(freed.Permits)
	if data, err := json.Marshal(freed); err == nil {
		nt.publish("freed", data)
	}
	nt.notifyAll(driver.Notice{Freed: freed.Limits})
}

// noticePrefix is the prefix of the subjects of notices, which no stream stores.
func (nt *notices) noticePrefix() string { return "TWA_" + nt.queue + "." }

func (nt *notices) publish(what string, data []byte) {
	nt.nc.Post(nt.noticePrefix()+what, data)
}

// notifyAll notifies the workers of this engine.
func (nt *notices) notifyAll(n driver.Notice) {
	for _, l := range nt.all() {
		l.notify(n)
	}
}

// recall makes the workers of this engine ask for their deferred jobs again.
func (nt *notices) recall() {
	for _, l := range nt.all() {
		l.recall()
	}
}

// notifyWorker notifies one worker of this engine of its canceled claims.
func (nt *notices) notifyWorker(ctx context.Context, name string) {
	for _, l := range nt.all() {
		if l.name == name {
			l.canceled(ctx)
		}
	}
}

// permitsLeft returns the permits that a group leaves which was written from a sequence on.
func permitsLeft(s *subjects, g stream.Group, first uint64) map[string]uint64 {
	var left map[string]uint64
	for i, w := range g {
		if name, ok := strings.CutPrefix(w.Subject, s.permitSubject("")); ok && len(w.Data) == 0 {
			if left == nil {
				left = map[string]uint64{}
			}
			left[name] = first + uint64(i)
		}
	}
	return left
}

func (nt *notices) all() []*listener {
	nt.mu.Lock()
	defer nt.mu.Unlock()
	return slices.Clone(nt.listeners)
}

// listen passes notices of other processes to a worker, until stop is called. Without the
// permission to subscribe the worker finds the same by its polls, later.
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
