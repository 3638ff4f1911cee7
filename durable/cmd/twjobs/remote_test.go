package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// command runs the program, and returns what it prints and its status.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	status := run(within(t), args, &out, &out)
	return out.String(), status
}

// A service with the embedded engine is looked at and changed while it runs.
func TestURL(t *testing.T) {
	e, err := embedded.Open(within(t), t.TempDir())
	require.NoError(t, err)
	q, err := durable.Open(within(t), e, durable.WithWorkerName("mailer"))
	require.NoError(t, err)
	defer q.Close()
	ref, err := q.Add(within(t), durable.Job{Kind: "mail", After: time.Hour, Payload: []byte("hello\x1b\u202e\u009b")})
	require.NoError(t, err)
	begun := make(chan bool, 1)
	q.Handle("mail", func(context.Context, *durable.Attempt) error { begun <- true; return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	user := ""
	h := admin.NewHandler(q, admin.WithWrites(), admin.WithUser(func(r *http.Request) string { user, _, _ = r.BasicAuth(); return user }))
	srv := httptest.NewServer(http.StripPrefix("/admin", h))
	defer srv.Close()
	at := strings.Replace(srv.URL, "://", "://ann:secret@", 1) + "/admin/"

	out, status := command(t, "-url", at, "list")
	require.Zero(t, status, out)
	require.Contains(t, out, string(ref))
	require.Regexp(t, `\d\d:\d\d:\d\d [+-]\d\d:\d\d \(`, out, "a time with its zone")
	out, status = command(t, "-json", "-url", at, "show", string(ref))
	require.Zero(t, status, out)
	var j admin.Job
	require.NoError(t, json.Unmarshal([]byte(out), &j))
	require.Equal(t, "hello\x1b\u202e\u009b", j.Payload)
	require.NotRegexp(t, "[\x1b\u202e\u009b]", out)
	out, status = command(t, "-url", at, "workers")
	require.Zero(t, status, out)
	require.Equal(t, 2, strings.Count(out, "\n"), out)
	require.Regexp(t, `\nmailer .* 0 .* mail  `, out)
	out, status = command(t, "-url", at, "reschedule", "-in", "2h", string(ref))
	require.Zero(t, status, out)
	require.Contains(t, out, "(2h0m0s)")
	out, status = command(t, "-url", at, "run-now", string(ref))
	require.Zero(t, status, out)
	<-begun
	require.Equal(t, "ann", user)
	stop()
	require.NoError(t, <-done)
	out, status = command(t, "-url", at, "cancel", string(ref))
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "not done: it has ended, or was canceled before")
	kept, err := q.Add(within(t), durable.Job{Kind: "mail", After: time.Hour, Retain: time.Hour})
	require.NoError(t, err)
	out, status = command(t, "-url", at, "cancel", string(kept))
	require.Zero(t, status, out)
	out, status = command(t, "-url", at, "cancel", string(kept))
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "not done: it is canceled\n")

	for _, wrong := range []string{"nothing", srv.Listener.Addr().String(), "ftp://x", "http://joe:s3cret@h:port"} {
		out, status = command(t, "-url", wrong, "list")
		require.Equal(t, 1, status)
		require.Contains(t, out, "-url")
		require.NotContains(t, out, "s3cret")
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	out, status = command(t, "-url", other.URL, "list")
	require.Equal(t, 1, status)
	require.Contains(t, out, "is it that of an admin handler?")
}

// Each header is sent, also Host, and several of one name.
func TestHeaders(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		fmt.Fprintf(w, `{"state":"done","error":%q}`, fmt.Sprint(r.Host, r.Header["X-A"], user))
	}))
	defer srv.Close()
	out, status := command(t, "-header", "host: mails.example", "-header", "X-A: 1", "-header", "X-A:2",
		"-url", strings.Replace(srv.URL, "://", "://ann:secret@", 1), "await", "a")
	require.Zero(t, status, out)
	require.Equal(t, "done mails.example[1 2]ann\n", out)
}

// Each job is redriven once, though it dies again at once, and is met again.
func TestRedriveAllEnds(t *testing.T) {
	e, err := embedded.Open(within(t), t.TempDir())
	require.NoError(t, err)
	q, err := durable.Open(within(t), e, durable.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer q.Close()
	q.Handle("fail", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	const n = 50
	for range n {
		_, err = q.Add(within(t), durable.Job{Kind: "fail"})
		require.NoError(t, err)
	}
	go q.Run(t.Context())
	dead := func(n int64) {
		require.Eventually(t, func() bool { return q.Stats().Dead == n }, patience, time.Millisecond)
	}
	dead(n)
	srv := httptest.NewServer(admin.NewHandler(q, admin.WithWrites(), admin.WithLogger(slog.New(slog.DiscardHandler))))
	defer srv.Close()
	out, status := command(t, "-url", srv.URL, "redrive", "-all")
	require.Zero(t, status, out)
	require.Equal(t, "50 jobs: wait again\n", out)
	dead(2 * n)
}

// The timeout bounds each poll of await beyond the time for which the handler waits, and never the wait for the job.
func TestAwaitOutlastsTimeout(t *testing.T) {
	t.Parallel()
	var polls atomic.Int64
	silent := make(chan bool)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("ref") == "silent" {
			<-silent
			return
		}
		time.Sleep(200 * time.Millisecond)
		fmt.Fprint(w, map[bool]string{true: `{"state":"done"}`, false: "{}"}[polls.Add(1) == 3])
	}))
	defer srv.Close()
	defer close(silent)
	out, status := command(t, "-timeout", "50ms", "-url", srv.URL, "await", "a")
	require.Zero(t, status, out)
	require.EqualValues(t, 3, polls.Load())
	polls.Store(2)
	out, status = command(t, "-timeout", "2562047h47m16s", "-url", srv.URL, "await", "a") // the longest that a flag can have
	require.Zero(t, status, out)
	out, status = command(t, "-timeout", "50ms", "-url", srv.URL, "await", "silent")
	require.Equal(t, 1, status)
	require.Contains(t, out, "no answer within 5.05s")
}

// A limit, a pause and the end of a job that runs are the same on a store that no process has
// and on a service that runs.
func TestFlow(t *testing.T) {
	dir := t.TempDir()
	e, err := embedded.Open(within(t), dir)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	begun, ended := make(chan bool, 1), make(chan error, 1)
	q.Handle("long", func(ctx context.Context, _ *durable.Attempt) error {
		begun <- true
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
	waits, err := q.Add(within(t), durable.Job{Kind: "mail", After: time.Hour})
	require.NoError(t, err)
	runs, err := q.Add(within(t), durable.Job{Kind: "long"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	srv := httptest.NewServer(admin.NewHandler(q, admin.WithWrites()))
	defer srv.Close()
	expect := func(status int, want string, args ...string) {
		t.Helper()
		out, got := command(t, args...)
		require.Equal(t, status, got, out)
		require.Regexp(t, want, out)
	}
	on := func(place ...string) {
		expect := func(status int, want string, args ...string) {
			t.Helper()
			expect(status, want, append(place, args...)...)
		}
		expect(0, `per customer: set`, "limits", "set", "-kind", "mail", "-per-lane", "-running", "4", "-rate", "2.5", "-burst", "10", "per customer")
		expect(0, `few: set`, "limits", "set", "-kind", "x", "-running", "2", "few")
		expect(0, `lane "l" of kind "k": paused`, "pause", "-kind", "k", "-lane", "l")
		expect(0, `few +x +0 of 2 +- +- +0 +-\nper customer +mail, each lane +0 of 4 +2.5/s, burst 10 +0 +0 +-\npaused: lane "l" of kind "k"\n$`, "limits")
		expect(0, `^\[{"name":"few","kind":"x","running":2,"taken":0,"waiting":0},.*\]\n\[{"kind":"k","lane":"l","since":"[^"]+"}\]\n$`, "-json", "limits")
		expect(1, `the whole queue: not done: .*not found`, "resume", "-all")
		expect(0, `^the whole queue: paused\n$`, "pause", "-all")
		expect(0, `goes on`, "resume", "-all")
		expect(0, `kind "ends": paused`, "pause", "-for", "90m", "-kind", "ends")
		expect(0, `paused: kind "ends", until 2.*\(1h(30m0|29m\d+)s\)\n`, "limits")
		expect(1, `is not positive`, "pause", "-for", "-1s", "-kind", "k")
		expect(2, `-for`, "resume", "-for", "1s", "-kind", "k")
		expect(0, `goes on`, "resume", "-kind", "ends")
		expect(0, `goes on`, "resume", "-kind", "k", "-lane", "l")
		expect(1, `Running -1`, "limits", "set", "-running", "-1", "n")
		expect(0, `deleted`, "limits", "delete", "few", "per customer")
		expect(1, `not found`, "limits", "delete", "few")
		expect(1, `it does not run`, "stop", string(waits))
	}
	<-begun
	on("-url", srv.URL)
	expect(0, `: asked to end`, "-url", srv.URL, "stop", string(runs))
	require.ErrorIs(t, <-ended, durable.ErrCanceled)
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, q.Close())
	on("-dir", dir)
}

// All errors that are kept of a job are shown, each with its time and zone.
func TestShowsErrors(t *testing.T) {
	dir := t.TempDir()
	e, err := embedded.Open(within(t), dir)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e, durable.WithBackoff(func(int) time.Duration { return time.Millisecond }))
	require.NoError(t, err)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
		return errors.New([]string{"", "timeout", "refused\nby peer"}[a.Number])
	})
	ref, err := q.Add(within(t), durable.Job{Kind: "k", MaxAttempts: 2})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return q.Stats().Dead == 1 }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	require.NoError(t, q.Close())
	out, status := twjobs(t, dir, "show", string(ref))
	require.Zero(t, status, out)
	const at = `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d`
	require.Regexp(t, `\nfailed +`+at+`, attempt 1: timeout\nfailed +`+at+`, attempt 2: refused\n +by peer\n`, out)
	out, status = twjobs(t, dir, "-json", "show", string(ref))
	require.Zero(t, status, out)
	var j admin.Job
	require.NoError(t, json.Unmarshal([]byte(out), &j))
	require.Len(t, j.Errors, 2)
	require.WithinDuration(t, time.Now(), j.Errors[0].At, patience)
}

// The message names the mistake in a command.
func TestNamesWhatIsWrong(t *testing.T) {
	for want, args := range map[string]string{
		`unknown command "lits"`: "-dir x lits",
		`-colour`:                "-dir x -colour list",
		`the queue is missing: set -url, -dir, -nats, -context or -postgres before the command`: "list",
		`more than one queue is set`:                                       "-dir x -nats y list",
		`the state "gone" is not waiting, running, dead, done or canceled`: "-url http://127.0.0.1:1 list -state gone",
		`redrive: -kind needs -all`:                                        "-url http://127.0.0.1:1 redrive -kind x",
		`limits: unknown command "x"`:                                      "-url http://127.0.0.1:1 limits x",
		`pause needs -kind, -lane or both`:                                 "-url http://127.0.0.1:1 pause",
		`schedules: unknown command "stop"`:                                "-url http://127.0.0.1:1 schedules stop x",
		`"2030" as "2006-01-02T15:04:05Z07:`:                               "-url http://127.0.0.1:1 reschedule -at 2030 x",
	} {
		out, status := command(t, strings.Fields(args)...)
		require.Equal(t, 2, status, out)
		require.Contains(t, strings.Split(out, "\n")[0], want)
	}
	out, status := command(t, "-context", "no-such", "list")
	require.Equal(t, 1, status)
	require.Contains(t, out, `-context "no-such"`)
}

// A context of the command nats says where a server is, and who one is.
func TestContext(t *testing.T) {
	address, nc := serve(t)
	e, err := jetstream.Connect(within(t), nc)
	require.NoError(t, err)
	defer e.Close()
	_, host, _ := strings.Cut(address, "@")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	write := func(name string, fields map[string]string) {
		text, err := json.Marshal(fields)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600))
	}
	write("good", map[string]string{"url": "nats://" + host, "user": "u", "password": "p4ss"})
	write("bad", map[string]string{"url": "nats://" + host, "user": "u", "password": "s3cret"})
	write("domain", map[string]string{"url": "nats://" + host, "jetstream_domain": "hub"})
	out, status := command(t, "-context", "good", "list")
	require.Zero(t, status, out)
	out, status = command(t, "-context", filepath.Join(dir, "good.json"), "list")
	require.Zero(t, status, out)
	out, status = command(t, "-context", "bad", "list")
	require.Equal(t, 1, status, out)
	require.NotContains(t, out, "s3cret")
	out, status = command(t, "-context", "bad", "-password", "p4ss", "list")
	require.Zero(t, status, out)
	out, status = command(t, "-context", "domain", "list")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "domain")
	out, status = command(t, "-nats", host, "-creds", "/no/such", "list")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "/no/such")
	out, status = command(t, "-nats", host, "-nkey", "/no/such", "list")
	require.Equal(t, 1, status, out)
	out, status = command(t, "-nats", host, "-tlsca", "/no/such", "list")
	require.Equal(t, 1, status, out)
}

// Who may not make tables has somebody run what is printed.
func TestMigrate(t *testing.T) {
	srv := pgserver.Test(t)
	place := []string{"-postgres", srv.DSN(), "-queue", "new"}
	out, status := command(t, append(place, "migrate")...)
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "the queue does not exist")
	var script, log bytes.Buffer
	require.Zero(t, run(within(t), append(place, "migrate", "-create", "-print"), &script, &log), log.String())
	out, status = command(t, append(place, "list")...)
	require.Equal(t, 1, status, "it was printed, and not run: %s", out)
	pool, err := pgxpool.New(within(t), srv.DSN())
	require.NoError(t, err)
	defer pool.Close()
	c, err := pool.Acquire(within(t))
	require.NoError(t, err)
	_, err = c.Conn().PgConn().Exec(within(t), script.String()).ReadAll()
	c.Release()
	require.NoError(t, err)
	out, status = command(t, append(place, "list")...)
	require.Zero(t, status, out)
	out, status = command(t, append(place, "migrate")...)
	require.Zero(t, status, out)
	require.Contains(t, out, "needs no migration")
	e, err := postgres.Connect(within(t), pool, postgres.WithSchema("new"))
	require.NoError(t, err)
	require.NoError(t, e.Migrate(within(t)))
	e.Close()
	out, status = command(t, "-postgres", srv.DSN(), "-queue", "other", "migrate", "-create")
	require.Zero(t, status, out)
	out, status = command(t, "-postgres", srv.DSN(), "-queue", "other", "list")
	require.Zero(t, status, out)
}

// Of a service whose database has stopped, what is asked names the cause, and waits for no
// timeout.
func TestStoppedDatabase(t *testing.T) {
	srv := pgserver.Test(t)
	pool, err := pgxpool.New(within(t), srv.DSN())
	require.NoError(t, err)
	defer pool.Close()
	e, err := postgres.Connect(within(t), pool)
	require.NoError(t, err)
	require.NoError(t, e.Migrate(within(t)))
	q, err := durable.Open(within(t), e, durable.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer q.Close()
	service := httptest.NewServer(admin.NewHandler(q))
	defer service.Close()
	require.NoError(t, srv.Kill())
	for _, place := range [][]string{{"-url", service.URL}, {"-postgres", srv.DSN()}} {
		for _, what := range []string{"stats", "list", "workers", "limits", "schedules"} {
			began := time.Now()
			out, status := command(t, append(place, "-timeout", "20s", what)...)
			t.Log(place[0], what, time.Since(began))
			require.Equal(t, 1, status, out)
			require.NotContains(t, out, "no answer within", what)
			require.Regexp(t, "does not answer: |connection refused", out, what)
		}
	}
}

// A worker with many kinds is listed with the first, and how many others there are.
func TestKindsOf(t *testing.T) {
	kinds := []string{"a", "b", "c", "d", "e", "f"}
	for want, w := range map[string]admin.Worker{
		"a":                           {Kinds: kinds[:1], AllKinds: 1},
		"a, b, c, d, e":               {Kinds: kinds[:5], AllKinds: 5},
		"a, b, c, d, e and 1 more":    {Kinds: kinds, AllKinds: 6},
		"a, b, c, d, e and 2995 more": {Kinds: kinds, AllKinds: 3000},
		"not known":                   {},
	} {
		require.Equal(t, want, kindsOf(&w))
	}
}
