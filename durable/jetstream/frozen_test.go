//go:build unix

package jetstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// metaLeader returns the number of the server that leads the cluster, from its notice of a request that
// only the leader answers.
func (c *cluster) metaLeader(t *testing.T, nc *nats.Conn) int {
	notices, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.API")
	require.NoError(t, err)
	defer notices.Unsubscribe()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := nc.PublishRequest("$JS.API.STREAM.NAMES", nc.NewInbox(), nil); err != nil {
			continue
		}
		m, err := notices.NextMsg(time.Second)
		if err != nil {
			continue
		}
		var notice struct{ Server, Subject string }
		if err := json.Unmarshal(m.Data, &notice); err == nil && notice.Subject == "$JS.API.STREAM.NAMES" {
			return int(notice.Server[1] - '0')
		}
	}
	t.Fatal("nobody leads the cluster")
	return -1
}

// streamLeader returns the number of the server that leads the stream.
func (c *cluster) streamLeader(t *testing.T, nc *nats.Conn) int {
	js, err := nc.JetStream()
	require.NoError(t, err)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		info, err := js.StreamInfo("TW_default_0")
		if err == nil && info.Cluster != nil && info.Cluster.Leader != "" {
			return int(info.Cluster.Leader[1] - '0')
		}
	}
	t.Fatal("nobody leads the stream")
	return -1
}

// connectFirst connects to a server, and to the others when it is lost.
func (c *cluster) connectFirst(t *testing.T, first int) *nats.Conn {
	urls := []string{c.servers[first].ClientURL()}
	for i, s := range c.servers {
		if i != first {
			urls = append(urls, s.ClientURL())
		}
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.DontRandomize(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// pulse is when something has happened.
type pulse struct {
	mu    sync.Mutex
	times []time.Time
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, time.Now())
}

// longest returns the longest time between two beats, from one time to another.
func (p *pulse) longest(from, to time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := from
	for _, at := range append(slices.Clone(p.times), to) {
		if at.After(from) && !at.After(to) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return longest
}

// crowd is programs that add jobs and run them, and what they have seen.
type crowd struct {
	t    *testing.T
	c    *cluster
	runs pulse

	mu       sync.Mutex
	accepted map[durable.Ref]bool
	ran      map[durable.Ref]int
}

// open returns the Queue of a program that is connected to a server.
func (w *crowd) open(server int) *durable.Queue {
	e, err := jetstream.Connect(within(w.t), w.c.connectFirst(w.t, server), w.c.opts...)
	require.NoError(w.t, err)
	return open(w.t, e)
}

// work runs jobs until the end of the test.
func (w *crowd) work(server int) {
	q := w.open(server)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
		w.runs.beat()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ran[a.Ref]++
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	w.t.Cleanup(func() { stop(); <-done })
}

// produce adds jobs until ctx ends, each by itself, and returns when each has been answered.
func (w *crowd) produce(ctx context.Context, server int, adds *pulse) {
	q := w.open(server)
	var all sync.WaitGroup
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		all.Go(func() {
			ref, err := q.Add(context.Background(), durable.Job{Kind: "k", After: rand.N(3 * time.Second)})
			if err != nil {
				assert.ErrorIs(w.t, err, durable.ErrUncertain)
				return
			}
			adds.beat()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.accepted[ref] = true
		})
	}
	all.Wait()
}

// check waits until all has run, and what was done at the thaw is done. Nothing runs twice, and no consumer is left over.
func (w *crowd) check(nc *nats.Conn) {
	js, err := nc.JetStream()
	require.NoError(w.t, err)
	thawed := time.Now()
	await(w.t, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		for ref := range w.accepted {
			if w.ran[ref] == 0 {
				return "not run: " + string(ref)
			}
		}
		for name := range js.ConsumerNames("TW_default_0") {
			bucket, _, near := strings.Cut(strings.TrimPrefix(name, "q"), "_")
			n, err := strconv.ParseInt(bucket, 10, 64)
			if near && (err != nil || time.Unix(0, 0).Add(time.Duration(n)*nearBucket).Before(thawed.Add(-10*time.Second))) {
				return "left over: " + name
			}
		}
		return ""
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	twice := slices.DeleteFunc(slices.Collect(maps.Keys(w.ran)), func(ref durable.Ref) bool { return w.ran[ref] == 1 })
	require.Empty(w.t, twice, "they ran twice")
	w.t.Logf("%d jobs ran, %d accepted", len(w.ran), len(w.accepted))
}

const (
	nearBucket = 2 * time.Second  // of TestFrozenFollower
	frozenFor  = 20 * time.Second // in it
)

// A server that leads nothing is frozen: jobs are added and run, and none runs twice, also when the
// server goes on and what was sent to it is done then.
func TestFrozenFollower(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes most of a minute")
	}
	t.Parallel()
	for try := 1; ; try++ { // a busy machine may elect another leader meanwhile, but not each time
		var gap time.Duration
		if !t.Run(fmt.Sprint(try), func(t *testing.T) { gap = freezeFollower(t) }) || gap < frozenFor/2 {
			return
		}
		require.Less(t, try, 3, "for %v nothing was done", gap)
	}
}

// freezeFollower returns the longest time in which nothing ran, or no Add was answered, while a server was frozen.
func freezeFollower(t *testing.T) (longest time.Duration) {
	c := prepareCluster(t)
	c.opts = []jetstream.Option{jetstream.WithReplicas(3), jetstream.WithBuckets(jetstream.Buckets{Near: nearBucket, Far: 10 * nearBucket, Lead: 2 * nearBucket, Settle: time.Second})}
	c.start(t)
	c.Open(t)
	nc := c.connectFirst(t, 0)
	stream, meta := c.streamLeader(t, nc), c.metaLeader(t, nc)
	frozen := 0
	for frozen == stream || frozen == meta {
		frozen++
	}
	t.Logf("n%d leads the stream, n%d the cluster; n%d is frozen", stream, meta, frozen)

	w := &crowd{t: t, c: c, accepted: map[durable.Ref]bool{}, ran: map[durable.Ref]int{}}
	w.work(stream)
	w.work((frozen + 1) % 3)
	adding, end := context.WithCancel(t.Context())
	defer end()
	var elsewhere, there pulse
	var producers sync.WaitGroup
	producers.Go(func() { w.produce(adding, stream, &elsewhere) })
	producers.Go(func() { w.produce(adding, frozen, &there) })
	time.Sleep(4 * time.Second)

	from := time.Now()
	t.Cleanup(func() { c.servers[frozen].Signal(syscall.SIGCONT) }) // or it does not end
	require.NoError(t, c.servers[frozen].Signal(syscall.SIGSTOP))
	time.Sleep(frozenFor)
	require.NoError(t, c.servers[frozen].Signal(syscall.SIGCONT))
	to := time.Now()
	time.Sleep(11 * time.Second) // longer than a write waits for its answer
	after := time.Now()
	end()
	producers.Wait()
	w.check(nc)
	for what, p := range map[string]*pulse{"run": &w.runs, "Add": &elsewhere, "Add over the frozen server": &there} {
		gap := p.longest(from, to)
		t.Logf("%s: at most %v without one, and %v after the thaw", what, gap, p.longest(to, after))
		longest = max(longest, gap)
	}
	return longest
}
