package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/natsserver"
	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// patience is how long a test waits for servers. It is a bound, not a measure.
const patience = 5 * time.Minute

// natsServer is a process, or a server in the process of the test.
type natsServer interface {
	nats.InProcessConnProvider
	ClientURL() string
}

// store is a server with one queue, in a directory of the test's.
type store struct {
	dir     string
	srv     natsServer
	process *natsserver.Server
	opts    []jetstream.Option
}

func TestMain(m *testing.M) { natsserver.Main(m) }

// newStore returns a store whose buckets are small, so that jobs some seconds ahead
// cascade and buckets close while a test runs.
func newStore(t testing.TB, opts ...jetstream.Option) *store {
	small := jetstream.WithBuckets(jetstream.Buckets{Near: 250 * time.Millisecond, Far: 2 * time.Second, Lead: time.Second, Settle: time.Second})
	s := &store{dir: t.TempDir(), opts: append([]jetstream.Option{small}, opts...)}
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

func (s *store) start(t testing.TB) {
	var err error
	s.process, err = natsserver.Start("-dir", s.dir)
	require.NoError(t, err)
	s.srv = s.process
}

func (s *store) stop(t testing.TB) { require.NoError(t, s.process.Stop()) }

func (s *store) Restart(t testing.TB) {
	s.stop(t)
	s.start(t)
}

func (s *store) connect(t testing.TB) *nats.Conn {
	nc, err := nats.Connect("", nats.InProcessServer(s.srv), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func (s *store) Open(t testing.TB) driver.Engine {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := jetstream.Connect(ctx, s.connect(t), s.opts...)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// wall is between a client and a server. While it is locked nothing passes, and who writes to
// it waits. On a connection that was made before it was severed nothing passes any more, and
// the client is not told when the server gives it up.
type wall struct {
	sync.RWMutex
	srv     natsServer
	severed atomic.Int64
}

func (w *wall) InProcessConn() (net.Conn, error) {
	c, err := w.srv.InProcessConn()
	closed, cancel := context.WithCancel(context.Background())
	return &wallConn{c, w, w.severed.Load(), closed, cancel}, err
}

type wallConn struct {
	net.Conn
	wall   *wall
	made   int64
	closed context.Context // by the client
	cancel context.CancelFunc
}

func (c *wallConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}

func (c *wallConn) Read(b []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = c.Conn.Read(b)
		c.wall.RLock()
		severed := c.wall.severed.Load() > c.made
		c.wall.RUnlock()
		if severed {
			n = 0
		}
		if severed && err != nil {
			<-c.closed.Done()
		}
	}
	return n, err
}

func (c *wallConn) Write(b []byte) (int, error) {
	c.wall.RLock()
	defer c.wall.RUnlock()
	if c.wall.severed.Load() > c.made {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// OpenClocked makes the test a Clocked.
func (s *store) OpenClocked(t testing.TB, ahead time.Duration) (driver.Engine, func(time.Duration)) {
	clock := &serverClock{}
	clock.set(ahead)
	clocked := *s
	clocked.opts = append(slices.Clone(s.opts), jetstream.Shift(clock.show))
	return clocked.Open(t), clock.set
}

// OpenSilent makes the test a Silencer. Package nats does not ask by itself whether the
// server is there.
func (s *store) OpenSilent(t testing.TB) (driver.Engine, enginetest.Line) {
	w := &wall{srv: s.srv}
	nc, err := nats.Connect("", nats.InProcessServer(w), nats.MaxReconnects(-1), nats.PingInterval(time.Hour), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := jetstream.Connect(ctx, nc, s.opts...)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e, enginetest.Line{Silence: w.Lock, Heal: w.Unlock, Sever: func() { w.severed.Add(1) }}
}

func TestConformance(t *testing.T) {
	t.Parallel() // like the others here: most of their time they wait
	enginetest.Run(t, func(t testing.TB) enginetest.Store {
		if strings.Contains(t.Name(), "/Many") {
			// So many queues have hundreds of consumers a second where buckets are small.
			return newStore(t, jetstream.WithBuckets(jetstream.Buckets{Near: 5 * time.Second, Far: time.Minute, Lead: 10 * time.Second, Settle: 5 * time.Second}))
		}
		return newStore(t)
	})
}

// cluster is three servers with one queue on all of them.
type cluster struct {
	store
	servers [3]*natsserver.Server
	dirs    [3]string
	ports   []int
	turn    int
}

func newCluster(t testing.TB) *cluster {
	c := prepareCluster(t)
	c.start(t)
	return c
}

// prepareCluster returns a cluster of which no server has started.
func prepareCluster(t testing.TB) *cluster {
	c := &cluster{store: store{opts: []jetstream.Option{
		jetstream.WithBuckets(jetstream.Buckets{Near: 250 * time.Millisecond, Far: 2 * time.Second, Lead: time.Second, Settle: time.Second}), jetstream.WithReplicas(3),
	}}}
	reserved, err := ports.Reserve(len(c.servers))
	require.NoError(t, err)
	t.Cleanup(reserved.Release)
	c.ports = reserved.Ports
	for i := range c.dirs {
		c.dirs[i] = t.TempDir()
	}
	t.Cleanup(func() { c.stop(t) })
	return c
}

func (c *cluster) start(t testing.TB) {
	for i := range c.servers {
		c.startNode(t, i)
	}
}

func (c *cluster) startNode(t testing.TB, i int) {
	routes := fmt.Sprint(c.ports[i])
	for k, p := range c.ports {
		if k != i {
			routes += fmt.Sprint(",", p)
		}
	}
	var err error
	c.servers[i], err = natsserver.Start("-name", fmt.Sprintf("n%d", i), "-dir", c.dirs[i], "-routes", routes)
	require.NoError(t, err)
}

// stop ends all servers at once: one alone waits for others to take over what it leads.
func (c *cluster) stop(t testing.TB) {
	var wg sync.WaitGroup
	var errs [3]error
	for i, srv := range c.servers {
		if srv != nil { // nil: the test has ended before it was started
			wg.Go(func() { errs[i] = srv.Stop() })
		}
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs[:]...))
}

func (c *cluster) Restart(t testing.TB) {
	c.stop(t)
	c.start(t)
}

func (c *cluster) connectTo(t testing.TB, i int) *nats.Conn {
	nc, err := nats.Connect(c.servers[i].ClientURL(), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// Open connects to one server after the other, so that most are not the stream's leader.
func (c *cluster) Open(t testing.TB) driver.Engine {
	c.turn++
	nc := c.connectTo(t, c.turn%3)
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), patience/4)
		e, err := jetstream.Connect(ctx, nc, c.opts...)
		cancel()
		if err == nil {
			t.Cleanup(func() { e.Close() })
			return e
		}
		require.True(t, time.Now().Before(end), "the cluster does not start: %v", err)
	}
}

// What depends on how many replicas there are: the conditions of writes, and reads that
// may be a moment behind.
func TestConformanceOfThreeNodes(t *testing.T) {
	t.Parallel()
	enginetest.RunOnly(t, func(t testing.TB) enginetest.Store { return newCluster(t) },
		"Keys", "CancelOnTheWay", "Reschedule", "Redrive", "Frozen", "LateInsert", "StaleClaim", "Accounts",
		"OnKey", "PushedBack", "FreeWhenBegun", "Signal", "ReplaceAgainstClaim", "SignalAgainstDeadline", "LastValue", "KeyLeftByTheDead", "KeyAfterGrace",
		"AddedWithoutPause", "DueKeepsItsTurn", "DueTakesManyValues",
		"Deaths", "ClaimAnswerLost", "LeaseLostWaiting", "BeatAfterLease", "ScheduleEditedLate", "Confirms", "LimitClaims", "LimitDeath", "CancelRunning", "Await",
		"AwaitChanged", "AwaitOtherEnds", "AwaitRetained", "Retain", "RetainCancel", "RetainKey", "RetainAtomic")
}

// A queue over several streams is one queue.
func TestConformanceOfPartitions(t *testing.T) {
	t.Parallel()
	enginetest.RunOnly(t, func(t testing.TB) enginetest.Store { return newStore(t, jetstream.WithPartitions(3)) },
		"Batch", "List", "Pages", "Backlog", "Workers", "UnknownRef", "Keys", "OnKey", "Signal", "ScheduleShared", "Accounts", "Pauses", "PauseForClaims", "Cooldown", "CancelRunning",
		"Await", "AwaitRetained", "Retain", "RetainCancel", "RetainKey", "RetainSchedule")
	q, err := durable.Open(t.Context(), newStore(t, jetstream.WithPartitions(2)).Open(t))
	require.NoError(t, err)
	defer q.Close()
	err = q.SetLimit(t.Context(), "l", durable.Limit{Running: 1})
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorContains(t, err, "cannot have limits")
}
