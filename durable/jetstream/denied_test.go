package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// soon bounds the time until a denial is an error. On a quiet machine it is less than the 5 s for which a
// question waits for its answer.
// The load is that of the question, not of the begin of all tests.
func soon() time.Duration { return busy.Longer(4 * time.Second) }

// denying returns a connection of a user of a new server who is denied some subjects, which
// are of a queue that is there.
func denying(t *testing.T, publish, subscribe []string) *nats.Conn {
	users := []*server.User{{Username: "all", Password: "x"}, {Username: "few", Password: "x", Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Deny: publish}, Subscribe: &server.SubjectPermission{Deny: subscribe},
	}}}
	srv, err := server.NewServer(&server.Options{
		ServerName: "test", Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), Users: users, AuthTimeout: 60,
	})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(patience))
	dial := func(user string) *nats.Conn {
		nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo(user, "x"), nats.MaxReconnects(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), nats.Timeout(time.Minute))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	e, err := jetstream.Connect(within(t), dial("all"))
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	_, err = q.AddMany(within(t), durable.Job{Kind: "k"})
	require.NoError(t, err)
	require.NoError(t, q.Close())
	return dial("few")
}

// requireDenied requires that f fails at once and names the denied subject. A busy machine may be late now and then.
func requireDenied(t *testing.T, subject string, f func() error) {
	t.Helper()
	for try := 1; ; try++ {
		began := time.Now()
		err := f()
		took := time.Since(began)
		require.ErrorIs(t, err, nats.ErrPermissionViolation)
		require.ErrorContains(t, err, subject)
		if took < soon() {
			return
		}
		require.Less(t, try, 3, "it takes %v", took)
	}
}

// Connect fails at once if the server denies a subject, and names the subject.
func TestConnectDenied(t *testing.T) {
	t.Parallel()
	for subject, nc := range map[string]*nats.Conn{
		"$JS.API.STREAM.INFO.TW_default_0":   denying(t, []string{"$JS.API.>"}, nil),
		"$JS.API.STREAM.CREATE.TW_default_0": nil,
		"_INBOX.":                            denying(t, nil, []string{"_INBOX.>"}),
	} {
		if nc == nil { // of a queue that is not there
			continue
		}
		requireDenied(t, subject, func() error {
			_, err := jetstream.Connect(within(t), nc)
			return err
		})
		requireDenied(t, subject, func() error { // though the client has asked for its answers before
			_, err := jetstream.Connect(within(t), nc)
			return err
		})
	}
	nc := denying(t, []string{"$JS.API.STREAM.CREATE.>"}, nil)
	requireDenied(t, "$JS.API.STREAM.CREATE.TW_other_0", func() error {
		_, err := jetstream.Connect(within(t), nc, jetstream.WithQueue("other"))
		return err
	})
}

// Writes and reads that are denied are errors at once, single or in a batch. The user's own
// handler of errors is told, too.
func TestVerbsDenied(t *testing.T) {
	t.Parallel()
	nc := denying(t, []string{"TW_default_0.q.>", "TW_default_0.h.>", "TW_default_0.c.>", "$JS.API.DIRECT.GET.>"}, nil)
	told := make(chan error, 1000)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err })
	_, err := jetstream.Connect(within(t), nc)
	if err != nil { // Connect reads the watermark
		requireDenied(t, "$JS.API.DIRECT.GET.TW_default_0.", func() error { return err })
	}
	nc = denying(t, []string{"TW_default_0.q.>", "TW_default_0.h.>", "TW_default_0.c.>"}, nil)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err })
	e, err := jetstream.Connect(within(t), nc)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	defer q.Close()
	requireDenied(t, "TW_default_0.q.", func() error {
		_, err := q.AddMany(within(t), durable.Job{Kind: "k"})
		return err
	})
	requireDenied(t, "TW_default_0.h.", func() error {
		_, err := q.AddMany(within(t), durable.Job{Kind: "k", After: 10 * time.Hour}, durable.Job{Kind: "k", After: 10 * time.Hour, Key: "key"})
		return err
	})
	for info, err := range q.All(within(t), durable.Filter{}) {
		require.NoError(t, err)
		requireDenied(t, "TW_default_0.c.", func() error {
			_, err := q.Cancel(within(t), info.Ref)
			return err
		})
	}
	require.ErrorIs(t, <-told, nats.ErrPermissionViolation)
}

// A worker that is denied what it needs says so: a heartbeat by Run, all else by Fetch, also if
// its claims are denied, which fail by asking once more.
func TestWorkerDenied(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"TW_default_0.c.>", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.ACK.>"} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			e, err := jetstream.Connect(within(t), denying(t, []string{subject}, nil))
			require.NoError(t, err)
			defer e.Close()
			w, err := e.Work(within(t), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Minute, Ahead: time.Second, Retention: time.Hour})
			require.NoError(t, err)
			err = w.Fetch(within(t), func(held []*driver.Delivery) {
				for i, v := range w.Claim(context.Background(), held) {
					if v.Status == driver.Granted {
						w.Finish(context.Background(), []driver.Completion{{Delivery: held[i], End: driver.Done}})
					}
				}
			})
			require.ErrorIs(t, err, nats.ErrPermissionViolation)
			require.ErrorContains(t, err, subject[:len(subject)-1])
		})
	}
	e, err := jetstream.Connect(within(t), denying(t, []string{"TW_default_0.w.>"}, nil))
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	defer q.Close()
	q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	requireDenied(t, "TW_default_0.w.", func() error { return q.Run(within(t)) })
}
