package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// readOnly is a way in which a server takes no writes, and its end. Existing connections stay in both.
var readOnly = map[string]struct{ begin, end func(t *testing.T, s *store) }{
	"setting": {
		func(t *testing.T, s *store) { s.setReadOnly(t, "on") },
		func(t *testing.T, s *store) { s.setReadOnly(t, "off") },
	},
	"standby": {
		func(t *testing.T, s *store) {
			require.NoError(t, s.srv.Kill())
			require.NoError(t, os.WriteFile(filepath.Join(s.srv.Dir(), "data", "standby.signal"), nil, 0o666))
			require.NoError(t, s.srv.Start())
		},
		func(t *testing.T, s *store) { s.exec(t, s.pool(t), "select pg_promote()") },
	},
}

func (s *store) setReadOnly(t *testing.T, to string) {
	pool := s.pool(t)
	_, err := pool.Exec(t.Context(), "alter system set default_transaction_read_only = "+to)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "select pg_reload_conf()")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var is string
		return s.pool(t).QueryRow(t.Context(), "show default_transaction_read_only").Scan(&is) == nil && is == to
	}, patience, 10*time.Millisecond)
}

// A server that takes no writes is named by all calls that write, before their context ends, and by
// Health. Reads work, and Run says why it waits. All go on when it takes writes again.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for name, way := range readOnly {
		for _, when := range []string{"at start", "later"} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				s := newStore(pgserver.Test(t, room, "hot_standby=on"))
				ctx := t.Context()
				before, err := durable.Open(ctx, s.open(t))
				require.NoError(t, err)
				refs, err := before.AddMany(ctx, durable.Job{Kind: "other", After: time.Hour, Key: "key", Signals: true}, durable.Job{Kind: "k", After: time.Hour})
				require.NoError(t, err)
				require.NoError(t, before.SetSchedule(ctx, "s", "@every 1h", durable.Job{Kind: "other"}))
				require.NoError(t, before.Close())
				if when == "at start" {
					way.begin(t, s)
				}
				var log syncBuffer
				e := s.open(t)
				q, err := durable.Open(ctx, e, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				defer q.Close()
				ran := make(chan bool, 1)
				q.Handle("k", func(context.Context, *durable.Attempt) error { ran <- true; return nil })
				running, stop := context.WithCancel(ctx)
				done := make(chan error, 1)
				go func() { done <- q.Run(running) }()
				if when == "later" {
					require.Eventually(t, func() bool { w, err := q.Workers(ctx); return err == nil && len(w) == 1 }, patience, 10*time.Millisecond)
					require.NoError(t, q.Health(ctx))
					way.begin(t, s)
				}

				for name, call := range writes(t, s, e, q, refs[0]) {
					ctx, cancel := context.WithTimeout(ctx, patience)
					err := call(ctx)
					for errors.Is(err, durable.ErrUncertain) && ctx.Err() == nil { // its connection was to the server that was killed
						err = call(ctx)
					}
					require.NoError(t, ctx.Err(), "%s: %v", name, err)
					cancel()
					require.ErrorIs(t, err, durable.ErrReadOnly, name)
				}
				reads(t, e, q, refs[0])
				require.Eventually(t, func() bool {
					return strings.Contains(log.String(), "cannot fetch jobs; trying again") && strings.Contains(log.String(), driver.ErrReadOnly.Error())
				}, patience, 10*time.Millisecond)

				way.end(t, s)
				require.Eventually(t, func() bool { _, err := q.Add(ctx, durable.Job{Kind: "k"}); return err == nil }, patience, 100*time.Millisecond)
				<-ran
				require.Eventually(t, func() bool { return q.Health(ctx) == nil }, patience, 10*time.Millisecond)
				stop()
				require.NoError(t, <-done)
			})
		}
	}
}

// writes are the calls that write, and Health.
func writes(t *testing.T, s *store, e *postgres.Engine, q *durable.Queue, ref durable.Ref) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Add":      func(ctx context.Context) error { _, err := q.Add(ctx, durable.Job{Kind: "k"}); return err },
		"Add, key": func(ctx context.Context) error { _, err := q.Add(ctx, durable.Job{Kind: "k", Key: "x"}); return err },
		"Add, replacing": func(ctx context.Context) error {
			_, err := q.Add(ctx, durable.Job{Kind: "k", Key: "key", OnKey: durable.Replace})
			return err
		},
		"Cancel":         func(ctx context.Context) error { _, err := q.Cancel(ctx, ref); return err },
		"CancelKey":      func(ctx context.Context) error { _, err := q.CancelKey(ctx, "key"); return err },
		"CancelRunning":  func(ctx context.Context) error { _, err := q.CancelRunning(ctx, ref); return err },
		"Reschedule":     func(ctx context.Context) error { _, err := q.Reschedule(ctx, ref, time.Now()); return err },
		"Signal":         func(ctx context.Context) error { _, err := q.Signal(ctx, "key", nil); return err },
		"Redrive":        func(ctx context.Context) error { return q.Redrive(ctx, ref) },
		"Delete":         func(ctx context.Context) error { return q.Delete(ctx, ref) },
		"SetSchedule":    func(ctx context.Context) error { return q.SetSchedule(ctx, "t", "@every 1h", durable.Job{Kind: "k"}) },
		"PauseSchedule":  func(ctx context.Context) error { return q.PauseSchedule(ctx, "s") },
		"DeleteSchedule": func(ctx context.Context) error { return q.DeleteSchedule(ctx, "s") },
		"RunNow":         func(ctx context.Context) error { _, err := q.RunNow(ctx, "s"); return err },
		"SetLimit":       func(ctx context.Context) error { return q.SetLimit(ctx, "l", durable.Limit{Running: 1}) },
		"Pause":          func(ctx context.Context) error { return q.Pause(ctx, durable.Pausable{}) },
		"Health":         q.Health,
		"AddTx": func(ctx context.Context) error {
			tx, err := s.pool(t).Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(ctx)
			_, err = e.AddTx(ctx, tx, durable.Job{Kind: "k"})
			return err
		},
	}
}

// reads calls what works on a server that takes no writes.
func reads(t *testing.T, e *postgres.Engine, q *durable.Queue, ref durable.Ref) {
	ctx := t.Context()
	_, err := q.Get(ctx, ref)
	require.NoError(t, err)
	_, err = q.Lookup(ctx, "key")
	require.NoError(t, err)
	infos, _, err := q.List(ctx, durable.Filter{}, "", 10)
	require.NoError(t, err)
	require.Len(t, infos, 3)
	for _, err := range q.Schedules(ctx) {
		require.NoError(t, err)
	}
	require.NoError(t, e.Migrate(ctx), "there is nothing to do")
}
