//go:build unix

package main

import (
	"cmp"
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

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// startNATS starts a server that syncs every write. Of routes, the first is its own port of the cluster; at most
// one: it is alone. Port -1 is a free one.
func startNATS(name, dir string, port int, routes []int, changes ...func(*server.Options)) *server.Server {
	opts := &server.Options{
		ServerName: name, Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, SyncAlways: true,
		JetStreamMaxStore: 16 << 30, JetStreamMaxMemory: 1 << 30,
	}
	if len(routes) > 1 {
		opts.Cluster.Name, opts.Cluster.Host, opts.Cluster.Port = "trials", "127.0.0.1", routes[0]
		opts.Cluster.NoAdvertise = true // who is to know a server has its address, or that of a proxy
		for _, p := range routes[1:] {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", p)})
		}
	}
	for _, change := range changes {
		change(opts)
	}
	srv := get(server.NewServer(opts))
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		must(errors.New("the server does not start"))
	}
	return srv
}

// routesOf returns the routes of the i-th of some nodes, of whose cluster these are the ports.
func routesOf(i int, ports []int) []int { return slices.Concat(ports[i:], ports[:i]) }

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
		s.nodes = append(s.nodes, startNATS(name, filepath.Join(s.dir, name), -1, routesOf(i, s.routes.Ports)))
		urls = append(urls, s.nodes[i].ClientURL())
	}
	s.url += strings.Join(urls, ",")
	return s
}

// open returns a Queue as that of another process would be. remove closes it.
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
	q := openQueue(ctx, e, opts...)
	s.atEnd = append(s.atEnd, func() { _ = q.Close() })
	return q
}

// openQueue opens a Queue on an engine whose servers may be slow to answer, or changing their leader: without
// a deadline it asks them once.
func openQueue(ctx context.Context, e engine, opts ...durable.Option) *durable.Queue {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return get(durable.Open(ctx, e, opts...))
}

// peer opens a Queue that runs a thousand handlers at once, where it is not them that are measured.
func (s *store) peer() ours { return ours{q: s.open(thousand), kinds: []string{kind}} }

func (s *store) remove() {
	for _, undo := range slices.Backward(s.atEnd) {
		undo()
	}
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
		return get(embedded.Open(ctx, dir, embedded.WithJetStream(opts...)))
	}
	if nodes > 1 {
		opts = append(opts, jetstream.WithReplicas(nodes))
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
		if cancel(); err == nil || ctx.Err() != nil {
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

// connectRole opens the engine of a process of a trial. Where its pool of PostgreSQL is small, twenty goroutines take
// connections from it.
func connectRole(ctx context.Context, s *spec) engine {
	if !strings.HasPrefix(s.URL, "postgres:") {
		return connectJetStream(ctx, s.URL, s.Store, s.Nodes, jetstream.WithBuckets(jetstream.Buckets{Near: nearBucket, Far: farBucket, Lead: leadOfFar, Settle: settle}))
	}
	config := get(pgxpool.ParseConfig(s.URL))
	config.MaxConns = cmp.Or(s.Pool, config.MaxConns)
	pool := get(pgxpool.NewWithConfig(ctx, config))
	for range min(20, 20*s.Pool) {
		go func() {
			for ; ctx.Err() == nil; time.Sleep(rand.N(20 * time.Millisecond)) {
				_, _ = pool.Exec(ctx, "select pg_sleep(random() * 0.02)")
			}
		}()
	}
	return persist(ctx, 10*time.Second, func(ctx context.Context) (engine, error) { return connectPostgres(ctx, pool) })
}

func connectNATS(url string) (*nats.Conn, error) {
	return nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
}
