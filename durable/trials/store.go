//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
	"github.com/tickwheel/tickwheel/durable/internal/ports"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// natsOptions returns those of a server that syncs every write. Of routes, the first is its
// own port of the cluster; none: it is alone. Port -1 is a free one.
func natsOptions(name, dir string, port int, routes []int) *server.Options {
	opts := &server.Options{
		ServerName: name, Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, SyncAlways: true,
		JetStreamMaxStore: 16 << 30, JetStreamMaxMemory: 1 << 30,
	}
	if len(routes) > 0 {
		opts.Cluster.Name, opts.Cluster.Host, opts.Cluster.Port = "trials", "127.0.0.1", routes[0]
		for _, p := range routes[1:] {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", p)})
		}
	}
	return opts
}

func startNATS(opts *server.Options) (*server.Server, error) {
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		return nil, errors.New("the server does not start")
	}
	return srv, nil
}

// routesOf returns the routes of the i-th of some nodes, of whose cluster these are the ports.
func routesOf(i int, ports []int) (routes []int) {
	if len(ports) == 1 {
		return nil
	}
	for k := range ports {
		routes = append(routes, ports[(i+k)%len(ports)])
	}
	return routes
}

// What a store is of.
const (
	onEmbedded  = "embedded"
	onJetStream = "jetstream" // one server
	onCluster   = "cluster"   // three, with three replicas
	onPostgres  = "postgres"
)

// nodesOf are how many servers of NATS an engine has.
var nodesOf = map[string]int{onJetStream: 1, onCluster: 3}

// store is where jobs are kept that are measured: servers, each with every write synced, and
// a directory.
type store struct {
	dir     string
	url     string           // that other processes reach it by; "": it is embedded
	nodes   []*server.Server // in this process, on one disk: their work is measured, not a network
	routes  *ports.Reservation
	pg      *pgserver.Server
	buckets []jetstream.Option
	atEnd   []func() // what closes Queues and connections
}

// newStore makes an empty store. The caller calls remove.
func newStore(engine string, buckets ...jetstream.Option) *store {
	s := &store{dir: get(os.MkdirTemp("", "trials")), buckets: buckets}
	if engine == onPostgres {
		s.pg = get(pgserver.New("max_connections=100"))
		s.url = s.pg.DSN() + "&pool_max_conns=16"
	}
	nodes := nodesOf[engine]
	s.routes = get(ports.Reserve(nodes))
	var urls []string
	for i := range nodes {
		name := fmt.Sprint("n", i)
		s.nodes = append(s.nodes, get(startNATS(natsOptions(name, filepath.Join(s.dir, name), -1, routesOf(i, s.routes.Ports)))))
		urls = append(urls, s.nodes[i].ClientURL())
	}
	s.url += strings.Join(urls, ",")
	return s
}

// open returns a Queue as that of another process would be. hangUp closes it.
func (s *store) open(opts ...durable.Option) *durable.Queue {
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	var e engine
	if s.pg != nil {
		pool := get(pgxpool.New(background, s.url))
		s.atEnd = append(s.atEnd, pool.Close)
		e = get(connectPostgres(ctx, pool))
	} else {
		e = connectJetStream(ctx, s.url, s.dir, len(s.nodes), s.buckets...)
	}
	q := get(durable.Open(ctx, e, opts...))
	s.atEnd = append(s.atEnd, func() { _ = q.Close() })
	return q
}

// peer opens a Queue that runs a thousand handlers at once, where it is not them that are measured.
func (s *store) peer() ours { return ours{s.open(thousand), []string{kind}} }

// cpu is the processor time of the servers, and of this process.
func (s *store) cpu() time.Duration {
	if s.pg != nil {
		return s.pg.CPU() + cpu()
	}
	return cpu()
}

func (s *store) hangUp() {
	for _, undo := range slices.Backward(s.atEnd) {
		undo()
	}
	s.atEnd = nil
}

func (s *store) remove() {
	s.hangUp()
	for _, n := range s.nodes {
		n.Shutdown()
		n.WaitForShutdown()
	}
	s.routes.Release()
	if s.pg != nil {
		must(s.pg.Stop())
	}
	os.RemoveAll(s.dir)
}

// connectJetStream opens an engine on servers, or an embedded one in a directory.
func connectJetStream(ctx context.Context, url, dir string, nodes int, opts ...jetstream.Option) engine {
	if url == "" {
		return get(embedded.Open(ctx, dir, embedded.With(opts...)))
	}
	if nodes > 1 {
		opts = append(opts, jetstream.Replicas(nodes))
	}
	nc := get(connectNATS(url))
	return persist(ctx, 15*time.Second, func(ctx context.Context) (engine, error) { return jetstream.Connect(ctx, nc, opts...) })
}

func connectPostgres(ctx context.Context, pool *pgxpool.Pool) (engine, error) {
	e, err := postgres.Connect(ctx, pool)
	if err != nil {
		return nil, err
	}
	return e, e.Migrate(ctx)
}

// persist connects again and again, for so long each time, until it has an answer: a server
// may just have been started.
func persist(ctx context.Context, each time.Duration, connect func(context.Context) (engine, error)) engine {
	for {
		try, cancel := context.WithTimeout(ctx, each)
		e, err := connect(try)
		cancel()
		var refusal *pgconn.PgError
		if err == nil || ctx.Err() != nil || errors.As(err, &refusal) && strings.HasPrefix(refusal.Code, "42") {
			return get(e, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// Small buckets, so that jobs cascade and buckets close all the time.
const (
	nearBucket = time.Second
	farBucket  = 10 * time.Second
	leadOfFar  = 2 * time.Second // before it begins a far bucket is moved to its near ones
	settle     = 2 * time.Second // after its end a near one is closed
)

// connectRole opens the engine of a process of a trial.
func connectRole(ctx context.Context, s *spec) engine {
	if strings.HasPrefix(s.URL, "postgres:") {
		return connectCrowded(ctx, s)
	}
	var opts []jetstream.Option
	if s.Small {
		opts = append(opts, jetstream.Buckets(nearBucket, farBucket, leadOfFar, settle))
	}
	return connectJetStream(ctx, s.URL, s.Store, s.Nodes, opts...)
}

func connectNATS(url string) (*nats.Conn, error) {
	return nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
}

// connectCrowded opens an engine on a pool, whose size is in the address, and makes so many
// goroutines take connections from it as the spec says.
func connectCrowded(ctx context.Context, s *spec) engine {
	pool := get(pgxpool.New(ctx, s.URL))
	for range s.Hogs {
		go func() {
			for ; ctx.Err() == nil; time.Sleep(rand.N(20 * time.Millisecond)) {
				_, _ = pool.Exec(ctx, "select pg_sleep(random() * 0.02)")
			}
		}()
	}
	return persist(ctx, 10*time.Second, func(ctx context.Context) (engine, error) {
		e, err := connectPostgres(ctx, pool)
		if err == nil {
			err = checkShift(ctx, pool, s.Dir)
		}
		return e, err
	})
}

// checkShift returns an error if the server's clock is not as far from ours as it has to be.
func checkShift(ctx context.Context, pool *pgxpool.Pool, dir string) error {
	var now time.Time
	err := pool.QueryRow(ctx, "select clock_timestamp()").Scan(&now)
	shift, _ := logIn(dir).shifts()
	if off := now.Sub(setclock.Real().Add(shift)); err == nil && off.Abs() > time.Minute {
		return fmt.Errorf("the server's clock is %v from where it should be", off)
	}
	return err
}
