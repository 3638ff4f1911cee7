package jetstream_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// posing is a connection to a server that says that it has another version.
type posing struct {
	srv     natsServer
	version string
}

func (p posing) InProcessConn() (net.Conn, error) {
	c, err := p.srv.InProcessConn()
	return &posingConn{Conn: c, version: p.version}, err
}

type posingConn struct {
	net.Conn
	version string
	rest    []byte
}

func (c *posingConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		line := make([]byte, 32<<10)
		n, err := c.Conn.Read(line)
		if err != nil {
			return 0, err
		}
		c.rest = ownVersion.ReplaceAll(line[:n], fmt.Appendf(nil, `"version":%q,"proto"`, c.version))
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

var ownVersion = regexp.MustCompile(`"version":"[^"]*","proto"`)

// A server that is too old is refused by its version, before anything is made there.
func TestServerTooOld(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dir := t.TempDir()
	for version, refused := range map[string]bool{
		"2.9.25": true, "2.10.27": true, "2.11.17": true, "2.12.0": true, "2.12.6": true, "2.12.7-RC.1": false,
		"2.12.7": false, "2.15.2": false, "3.0.0": false, "unknown": false,
	} {
		nc, err := nats.Connect("", nats.InProcessServer(posing{s.srv, version}), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
		require.NoError(t, err)
		defer nc.Close()
		e, err := jetstream.Connect(within(t), nc, jetstream.WithQueue("q"))
		if refused {
			require.ErrorContains(t, err, "this needs NATS 2.12.7, this server is "+version)
		} else {
			require.NoError(t, err, version)
			require.NoError(t, e.Close())
		}
		if version != "2.15.2" && version != "3.0.0" && version != "unknown" {
			require.ErrorContains(t, jetstream.Restore(within(t), nc, dir), "this needs NATS 2.15.0, this server is "+version)
		}
	}
}

// The same by the servers themselves, where they are installed: TICKWHEEL_NATS_SERVERS is a directory with
// a directory for each version, which has a nats-server.
func TestServersOfOtherVersions(t *testing.T) {
	t.Parallel()
	all, _ := filepath.Glob(filepath.Join(os.Getenv("TICKWHEEL_NATS_SERVERS"), "*", "nats-server"))
	if os.Getenv("TICKWHEEL_NATS_SERVERS") == "" || len(all) == 0 {
		t.Skip("TICKWHEEL_NATS_SERVERS names no servers")
	}
	for _, file := range all {
		version := filepath.Base(filepath.Dir(file))
		nc := runServer(t, file, t.TempDir())
		e, err := jetstream.Connect(within(t), nc)
		if version < "2.12.7" {
			require.ErrorContains(t, err, "this needs NATS 2.12.7, this server is "+version)
			continue
		}
		require.NoError(t, err, version)
		require.NoError(t, e.Close())
		works(t, nc)
	}
}

func runServer(t *testing.T, file, dir string) *nats.Conn {
	reserved, err := ports.Reserve(1)
	require.NoError(t, err)
	t.Cleanup(reserved.Release)
	cmd := exec.Command(file, "-js", "-sd", dir, "-a", "127.0.0.1", "-p", fmt.Sprint(reserved.Ports[0]))
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", reserved.Ports[0]), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	require.Eventually(t, nc.IsConnected, patience, 10*time.Millisecond)
	return nc
}

// A stream that an older server has made, which has passed over settings, is mended when the server is
// new enough.
func TestUpgradedServer(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	js, err := natsjs.New(s.connect(t))
	require.NoError(t, err)
	e := s.Open(t)
	stream, err := js.Stream(within(t), "TW_default_0")
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	require.NoError(t, e.Close())
	require.NoError(t, js.DeleteStream(within(t), "TW_default_0"))
	config.AllowMsgTTL, config.AllowAtomicPublish, config.AllowDirect, config.AllowRollup = false, false, false, false
	_, err = js.CreateStream(within(t), config)
	require.NoError(t, err)
	works(t, s.connect(t), s.opts...)
}

// lines collects what is logged.
type lines struct {
	sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(b)
}

func (l *lines) String() string {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.String()
}

// Settings of a stream that lose jobs are named, at Connect, and while a queue works.
func TestChangedSettings(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	e := s.Open(t)
	log := &lines{}
	q, err := durable.Open(within(t), e, durable.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	ctx, stop := context.WithCancel(within(t))
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	js, err := natsjs.New(s.connect(t))
	require.NoError(t, err)
	stream, err := js.Stream(within(t), "TW_default_0")
	require.NoError(t, err)
	right := stream.CachedInfo().Config
	add := func() error {
		_, err := q.Add(within(t), durable.Job{Kind: "k"})
		return err
	}
	require.NoError(t, add())
	for name, change := range map[string]func(*natsjs.StreamConfig){
		"max_age":                   func(c *natsjs.StreamConfig) { c.MaxAge = time.Hour },
		"discard":                   func(c *natsjs.StreamConfig) { c.Discard = natsjs.DiscardOld },
		"max_msgs":                  func(c *natsjs.StreamConfig) { c.MaxMsgs = 100_000 },
		"max_msgs_per_subject":      func(c *natsjs.StreamConfig) { c.MaxMsgsPerSubject = 100_000 },
		"max_msg_size":              func(c *natsjs.StreamConfig) { c.MaxMsgSize = 64 << 10 },
		"subject_delete_marker_ttl": func(c *natsjs.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Hour },
		"no_ack":                    func(c *natsjs.StreamConfig) { c.NoAck = true },
		"allow_atomic":              func(c *natsjs.StreamConfig) { c.AllowAtomicPublish = false },
	} {
		wrong := right
		change(&wrong)
		_, err := js.UpdateStream(within(t), wrong)
		require.NoError(t, err, name)
		if name != "allow_atomic" { // which Connect mends
			_, err = jetstream.Connect(within(t), s.connect(t), s.opts...)
			require.ErrorContains(t, err, name+" is ")
		}
		require.Eventually(t, func() bool {
			err := q.Health(within(t))
			return err != nil && bytes.Contains([]byte(err.Error()), []byte(name+" is "))
		}, patience, 10*time.Millisecond)
		require.ErrorContains(t, add(), name+" is ")
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "settings were changed") }, patience, 10*time.Millisecond)
		_, err = js.UpdateStream(within(t), right)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return q.Health(within(t)) == nil && add() == nil }, patience, 10*time.Millisecond)
	}
	stop()
	require.NoError(t, <-done)
}

// An account that may have too few consumers is refused; one that may have too few for the kinds of
// all workers is in Health and in the log.
func TestFewConsumers(t *testing.T) {
	t.Parallel()
	conf := func(n int) string {
		return fmt.Sprintf(`jetstream { max_file_store: 1GB, max_memory_store: 10MB }
			accounts { A: { jetstream: { max_file: 100MB, max_consumers: %d }, users: [ { user: u, password: p } ] } }`, n)
	}
	user := nats.UserInfo("u", "p")
	_, err := jetstream.Connect(within(t), dial(t, serveConf(t, conf(1)), user))
	require.ErrorContains(t, err, "max_consumers is 1")

	e, err := jetstream.Connect(within(t), dial(t, serveConf(t, conf(16)), user))
	require.NoError(t, err)
	log := &lines{}
	opts := []durable.Option{durable.WithLogger(slog.New(slog.NewTextHandler(log, nil)))}
	for i := range 40 {
		opts = append(opts, durable.WithKindConcurrency(fmt.Sprint("k", i), 1))
	}
	q, err := durable.Open(within(t), e, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	for i := range 40 {
		q.Handle(fmt.Sprint("k", i), func(context.Context, *durable.Attempt) error { return nil })
	}
	ctx, stop := context.WithCancel(within(t))
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return q.Health(within(t)) != nil }, patience, 10*time.Millisecond)
	require.ErrorContains(t, q.Health(within(t)), "maximum consumers limit reached")
	require.Eventually(t, func() bool { return bytes.Contains([]byte(log.String()), []byte("maximum consumers limit reached")) }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}

// A server without JetStream is an error at once.
func TestNoJetStream(t *testing.T) {
	t.Parallel()
	began := time.Now()
	_, err := jetstream.Connect(within(t), dial(t, serveConf(t, "")))
	require.ErrorContains(t, err, "has no JetStream")
	_, err = jetstream.Connect(within(t), dial(t, serveConf(t, `jetstream { max_file_store: 1GB, domain: here }`)), jetstream.WithDomain("elsewhere"))
	require.ErrorContains(t, err, `domain "elsewhere"`)
	_, err = jetstream.Connect(within(t), dial(t, serveConf(t, `jetstream { max_file_store: 1GB }
		accounts { A: { users: [ { user: u, password: p } ] } }`), nats.UserInfo("u", "p")))
	require.ErrorContains(t, err, "not enabled for account")
	require.Less(t, time.Since(began), patience/4)
}
