package jetstream_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// serveConf starts a server with a configuration, in a directory of its own, and a fast disk.
func serveConf(t testing.TB, conf string) *server.Server {
	file := filepath.Join(t.TempDir(), "server.conf")
	require.NoError(t, os.WriteFile(file, []byte("port: -1\n"+conf), 0o600))
	opts, err := server.ProcessConfigFile(file)
	require.NoError(t, err, conf)
	opts.Host, opts.NoSigs, opts.NoLog, opts.StoreDir, opts.AuthTimeout = "127.0.0.1", true, true, t.TempDir(), 60
	srv, err := server.NewServer(opts)
	require.NoError(t, err, conf)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(patience))
	return srv
}

// A store that is full by a limit of the server or the account runs all that it has accepted, and
// accepts more then. Producers that go on all the time do not take the room that jobs need to end.
func TestFullServer(t *testing.T) {
	t.Parallel()
	account := func(limits string) string {
		return `jetstream { max_file_store: 1GB, max_memory_store: 10MB }
			accounts { A: { jetstream: {` + limits + `}, users: [ { user: u, password: p } ] } }`
	}
	user := nats.UserInfo("u", "p")
	for name, c := range map[string]struct {
		conf    string
		user    nats.Option
		payload int
		opts    []jetstream.Option
	}{
		"server":            {conf: `jetstream { max_file_store: 16MB }`, payload: 10 << 10},
		"small server":      {conf: `jetstream { max_file_store: 2MB }`, payload: 2 << 10},
		"account":           {conf: account(`max_file: 16MB`), user: user, payload: 10 << 10},
		"account, 2 parts":  {conf: account(`max_file: 16MB`), user: user, payload: 10 << 10, opts: []jetstream.Option{jetstream.WithPartitions(2)}},
		"account's memory":  {conf: account(`max_file: 16MB, max_mem: 1KB`), user: user, payload: 10 << 10},
		"large jobs":        {conf: `jetstream { max_file_store: 16MB }`, payload: 200 << 10},
		"MaxBytes too high": {conf: `jetstream { max_file_store: 16MB }`, payload: 10 << 10, opts: []jetstream.Option{jetstream.WithMaxBytes(16 << 20)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serveConf(t, c.conf)
			var with []nats.Option
			if c.user != nil {
				with = append(with, c.user)
			}
			open := func() *durable.Queue {
				e, err := jetstream.Connect(within(t), dial(t, srv, with...), c.opts...)
				require.NoError(t, err)
				q, err := durable.Open(within(t), e)
				require.NoError(t, err)
				t.Cleanup(func() { q.Close() })
				return q
			}
			q, producer := open(), open()
			a := &accounts{payload: c.payload, accepted: map[durable.Ref]bool{}}
			var err error
			for err = nil; err == nil; {
				err = a.add(t, q)
			}
			require.ErrorIs(t, err, durable.ErrFull)
			full := len(a.accepted)
			require.Greater(t, full, 10)

			q.Handle("k", a.handle)
			ctx, stop := context.WithCancel(within(t))
			done := make(chan error, 1)
			go func() { done <- q.Run(ctx) }()
			more := 0
			require.Eventually(t, func() bool {
				if a.add(t, producer) == nil {
					more++
				}
				return more >= 50
			}, patience, 5*time.Millisecond, "%d of %d are left", a.left(), full)
			require.Eventually(t, func() bool { return a.left() == 0 }, patience, 20*time.Millisecond)
			stop()
			require.NoError(t, <-done)
		})
	}
}

// accounts are the jobs of two producers, one of which runs them, and whether each has ended.
type accounts struct {
	payload  int
	mu       sync.Mutex
	accepted map[durable.Ref]bool
}

func (a *accounts) add(t *testing.T, q *durable.Queue) error {
	a.mu.Lock() // before the handler looks
	defer a.mu.Unlock()
	ref, err := q.Add(within(t), durable.Job{Kind: "k", Payload: make([]byte, a.payload), MaxAttempts: 2})
	if err == nil {
		a.accepted[ref] = false
	}
	return err
}

func (a *accounts) left() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ended := range a.accepted {
		if !ended {
			n++
		}
	}
	return n
}

// handle fails the first attempt of some.
func (a *accounts) handle(_ context.Context, at *durable.Attempt) error {
	if at.Number == 1 && at.Ref[len(at.Ref)-1]%8 == 0 {
		return durable.RetryAfter(10*time.Millisecond, errors.New("once"))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.accepted[at.Ref] = true
	return nil
}
