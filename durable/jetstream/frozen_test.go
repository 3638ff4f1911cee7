//go:build unix

package jetstream_test

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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

// A server that leads nothing is frozen: jobs are added and run, and none runs twice, also when the
// server goes on and what was sent to it is done then.
func TestFrozenFollower(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes most of a minute")
	}
	t.Parallel()
	c := prepareCluster(t)
	c.opts = []jetstream.Option{jetstream.WithReplicas(3), jetstream.WithBuckets(jetstream.Buckets{Near: 2 * time.Second, Far: 20 * time.Second, Lead: 4 * time.Second, Settle: time.Second})}
	c.start(t)
	first := open(t, c.Open(t))
	require.NoError(t, first.Health(t.Context()))
	nc := c.connectFirst(t, 0)
	stream, meta := c.streamLeader(t, nc), c.metaLeader(t, nc)
	frozen := 0
	for frozen == stream || frozen == meta {
		frozen++
	}
	t.Logf("the stream's leader is n%d, the cluster's n%d; n%d is frozen", stream, meta, frozen)

	on := func(server int) *durable.Queue {
		e, err := jetstream.Connect(within(t), c.connectFirst(t, server), c.opts...)
		require.NoError(t, err)
		return open(t, e)
	}
	var ran, added, addedThere pulse
	var mu sync.Mutex
	accepted, runs := map[durable.Ref]bool{}, map[durable.Ref]int{}
	lateness := map[time.Time]time.Duration{}
	late := func(from, to time.Time) (most time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		for at, by := range lateness {
			if at.After(from) && at.Before(to) {
				most = max(most, by)
			}
		}
		return most
	}
	working, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for _, server := range []int{stream, (frozen + 1) % 3} {
		q := on(server)
		q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
			ran.beat()
			mu.Lock()
			defer mu.Unlock()
			runs[a.Ref]++
			lateness[time.Now()] = time.Since(a.Due)
			return nil
		})
		all.Go(func() { q.Run(working) })
	}
	adding, end := context.WithCancel(t.Context())
	var adds sync.WaitGroup
	produce := func(q *durable.Queue, p *pulse) {
		for adding.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			adds.Go(func() {
				ref, err := q.Add(context.Background(), durable.Job{Kind: "k", After: rand.N(3 * time.Second)})
				if err != nil {
					require.ErrorIs(t, err, durable.ErrUncertain)
					return
				}
				p.beat()
				mu.Lock()
				defer mu.Unlock()
				accepted[ref] = true
			})
		}
	}
	live, there := on(stream), on(frozen)
	adds.Go(func() { produce(live, &added) })
	adds.Go(func() { produce(there, &addedThere) })
	time.Sleep(6 * time.Second)

	const length = 20 * time.Second
	from := time.Now()
	require.NoError(t, c.servers[frozen].Signal(syscall.SIGSTOP))
	time.Sleep(length)
	require.NoError(t, c.servers[frozen].Signal(syscall.SIGCONT))
	to := time.Now()
	time.Sleep(12 * time.Second) // longer than a write has until it is given up
	end()
	gaps := map[string]time.Duration{}
	for what, p := range map[string]*pulse{"run": &ran, "Add": &added, "Add of its client": &addedThere} {
		gaps[what] = p.longest(from, to)
		t.Logf("%s: at most %v without one, and %v after the thaw", what, gaps[what], p.longest(to, time.Now()))
	}
	t.Logf("late at most by %v, and %v after the thaw", late(from, to), late(to, time.Now()))
	adds.Wait()
	await(t, func() string {
		mu.Lock()
		defer mu.Unlock()
		for ref := range accepted {
			if runs[ref] == 0 {
				return "not run: " + string(ref)
			}
		}
		return ""
	})
	time.Sleep(2 * time.Second) // a copy would be claimed meanwhile
	mu.Lock()
	defer mu.Unlock()
	twice := slices.DeleteFunc(slices.Collect(maps.Keys(runs)), func(ref durable.Ref) bool { return runs[ref] == 1 })
	require.Empty(t, twice, "they ran twice")
	t.Logf("%d jobs ran, %d accepted", len(runs), len(accepted))
	for what, gap := range gaps {
		require.Less(t, gap, length/2, what)
	}
}
