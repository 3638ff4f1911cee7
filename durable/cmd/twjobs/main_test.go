package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// patience limits how long a test waits for an event. It is a bound, not a measure.
const patience = 2 * time.Minute

// within returns a context that ends with patience: an engine tries for as long as it may.
// Without a deadline it asks once.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// twjobs runs the program on a directory, and returns what it prints and its status.
func twjobs(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	status := run(within(t), append([]string{"-dir", dir}, args...), &out, &out)
	return out.String(), status
}

// fill leaves a waiting job, one with a key, and a dead one in a new directory.
func fill(t *testing.T) (dir string, waiting, dead string) {
	dir = t.TempDir()
	e, err := embedded.Open(within(t), dir)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	defer q.Close()
	refs, err := q.AddMany(within(t), durable.Job{Kind: "wait", After: time.Hour, Payload: []byte("hello")},
		durable.Job{Kind: "key", Key: "k", After: time.Hour}, durable.Job{Kind: "fail"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	q.Handle("fail", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no\nuse")) })
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return q.Stats().Dead == 1 }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	return dir, string(refs[0]), string(refs[2])
}

func TestCommands(t *testing.T) {
	dir, waiting, dead := fill(t)
	out, status := twjobs(t, dir, "list")
	require.Zero(t, status, out)
	require.Contains(t, out, waiting)
	require.Contains(t, out, dead)
	out, status = twjobs(t, dir, "list", "-state", "dead", "-kind", "fail")
	require.Zero(t, status, out)
	require.NotContains(t, out, waiting)
	require.Contains(t, out, dead)
	out, status = twjobs(t, dir, "show", waiting)
	require.Zero(t, status, out)
	require.Contains(t, out, "payload  hello")
	out, status = twjobs(t, dir, "show", dead)
	require.Zero(t, status, out)
	require.Contains(t, out, "error    no\n         use")
	for ref, want := range map[string]string{waiting: "not due: It is due ", dead: "dead: It is dead, after 1 of 25 attempts: no\nuse."} {
		out, status = twjobs(t, dir, "why", ref)
		require.Zero(t, status, out)
		require.Contains(t, out, want)
	}
	out, status = twjobs(t, dir, "-json", "why", waiting)
	require.Zero(t, status, out)
	require.Contains(t, out, `"cause":"not due"`)
	out, status = twjobs(t, dir, "why", "-schedule", "no")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, `the schedule "no": durable: not found`)
	out, status = twjobs(t, dir, "await", dead)
	require.Equal(t, 3, status, out)
	require.Equal(t, "dead no\n", out)
	out, status = twjobs(t, dir, "await", "no")
	require.Equal(t, 1, status, out)
	out, status = twjobs(t, dir, "stats")
	require.Zero(t, status, out)
	require.Regexp(t, `fail +dead +1`, out)
	require.Contains(t, out, "0 overdue")
	out, status = twjobs(t, dir, "redrive", "-all")
	require.Zero(t, status, out)
	require.Contains(t, out, "1 job: ")
	out, status = twjobs(t, dir, "redrive", dead)
	require.Equal(t, 1, status, out)
	out, status = twjobs(t, dir, "cancel", waiting, dead)
	require.Zero(t, status, out)
	out, status = twjobs(t, dir, "cancel", waiting)
	require.Equal(t, 1, status, out)
	out, status = twjobs(t, dir, "-json", "await", waiting)
	require.Equal(t, 5, status, "it was canceled, and is not kept: %s", out)
	require.Equal(t, `{"state":"unknown"}`+"\n", out)
	for _, command := range []string{"show", "why"} {
		out, status = twjobs(t, dir, command, waiting)
		require.Equal(t, 1, status, out)
		require.Contains(t, out, fmt.Sprintf("not found: %q was done, canceled or deleted", waiting))
	}
	out, status = twjobs(t, dir, "cancel", "-key", "k")
	require.Zero(t, status, out)
	out, status = twjobs(t, dir, "list", "-n", "1")
	require.Zero(t, status, out)
	require.NotContains(t, out, "waiting")
}

// Where another process has the directory, the way is by its handler.
func TestDirInUse(t *testing.T) {
	dir, _, _ := fill(t)
	e, err := embedded.Open(within(t), dir)
	require.NoError(t, err)
	defer e.Close()
	out, status := twjobs(t, dir, "list")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "use -url")
}

func TestWrongUse(t *testing.T) {
	dir, _, _ := fill(t)
	for _, args := range [][]string{
		{}, {"nothing"}, {"workers", "x"}, {"delete"}, {"run-now"}, {"reschedule", "x"}, {"reschedule", "-in", "1h"}, {"migrate"},
		{"list", "-color"}, {"schedules", "stop", "x"}, {"-url", "http://127.0.0.1:1", "list"}, {"list", "x"}, {"list", "-state", "x"}, {"show"}, {"why"}, {"await"}, {"await", "a", "b"}, {"why", "-schedule", "a", "b"}, {"cancel"}, {"redrive"},
		{"redrive", "-all", "x"}, {"stats", "x"}, {"schedules", "x"}, {"schedules", "pause"}, {"limits", "x"}, {"limits", "delete"}, {"limits", "set", "n"}, {"limits", "set", "-running", "1"},
		{"limits", "set", "-kind", "k", "n"}, {"pause"}, {"pause", "x"}, {"pause", "-for", "0s", "-all"}, {"resume", "-all", "-kind", "k"}, {"stop"}, {"-nats", "x", "list"},
	} {
		out, status := twjobs(t, dir, args...)
		require.Equal(t, 2, status, "%v: %s", args, out)
		require.Contains(t, out, "twjobs -h lists the commands")
	}
	out, status := twjobs(t, dir+"/none", "list")
	require.Equal(t, 1, status, out)
	out, status = twjobs(t, dir, "show", "x")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, `"x" is not a Ref of this queue`)
	out, status = twjobs(t, dir, "why", "nightly")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "for a schedule add -schedule before its name")
	for arg, want := range map[string]string{"-h": "usage: twjobs", "-version": "twjobs "} {
		var printed bytes.Buffer
		require.Zero(t, run(within(t), []string{arg}, &printed, &bytes.Buffer{}))
		require.Contains(t, printed.String(), want)
	}
}

// A tool makes no queue, wherever it looks.
func TestMakesNothing(t *testing.T) {
	dir, waiting, _ := fill(t)
	for range 2 { // the first look has made nothing
		out, status := twjobs(t, dir, "-queue", "typo", "list")
		require.Equal(t, 1, status, out)
		require.Contains(t, out, `the queue does not exist: "typo"`)
	}
	out, status := twjobs(t, dir, "-partitions", "2", "list")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "the stream has 1, the program asks for 2")
	out, status = twjobs(t, dir, "-queue", "default", "show", waiting)
	require.Zero(t, status, out)
	empty := t.TempDir()
	out, status = twjobs(t, empty, "list")
	require.Equal(t, 1, status, out)
	made, err := os.ReadDir(empty)
	require.NoError(t, err)
	require.Empty(t, made)

	url, nc := serve(t)
	e, err := jetstream.Connect(within(t), nc, jetstream.WithQueue("spread"), jetstream.WithPartitions(3))
	require.NoError(t, err)
	defer e.Close()
	of := func(queue string) (string, int) {
		var out bytes.Buffer
		status := run(within(t), []string{"-nats", url, "-queue", queue, "list"}, &out, &out)
		return out.String(), status
	}
	for range 2 {
		out, status = of("sprad")
		require.Equal(t, 1, status, out)
		require.Contains(t, out, `the queue does not exist: "sprad"`)
	}
	out, status = of("spread")
	require.Zero(t, status, out, "it knows itself over how many streams it is spread")
}

// serve returns the address of a server, with user u and password p4ss, and a
// connection.
func serve(t *testing.T) (string, *nats.Conn) {
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), Username: "u", Password: "p4ss",
		AuthTimeout: 60, // seconds; the default of 2 is too short for a busy machine
	})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(patience))
	address := "nats://u:p4ss@" + srv.Addr().String()
	nc, err := nats.Connect(address, nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return address, nc
}

// A place that accepts connections and says nothing is named as stuck, whatever it is.
func TestStuck(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() // nobody accepts: the system does
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	for _, args := range [][]string{
		{"-url", "http://joe:s3cret@" + address + "/jobs/", "list"},
		{"-nats", "nats://joe:s3cret@" + address, "list"},
		{"-postgres", "postgres://u:s3cret@" + address + "/db?sslmode=disable", "list"},
		{"-postgres", "postgres://u:s3cret@" + address + "/db?sslmode=disable", "migrate", "-print"},
	} {
		var out bytes.Buffer
		status := run(within(t), append([]string{"-timeout", "200ms"}, args...), &out, &out)
		require.Equal(t, 1, status, "%q: %s", args, &out)
		require.Equal(t, 1, strings.Count(out.String(), "no answer within 200ms"), "%q: %s", args, &out)
		why, _, _ := strings.Cut(out.String(), "try again")
		require.Contains(t, why, port, "%q", args)
		require.NotContains(t, out.String(), "s3cret")
	}
}

// The part of an address before the @ is a secret, even if the address is wrong.
func TestShowsNoPassword(t *testing.T) {
	address, _ := serve(t)
	_, host, _ := strings.Cut(address, "@")
	for _, url := range []string{
		"nats://joe:s3cret@127.0.0.1:1", "nats://joe:s3cret@" + host, "joe:s3cret@127.0.0.1:1", "nats://s3cret@127.0.0.1:1",
		"nats://joe:s3cret/x@127.0.0.1:1", "nats://joe:%s3cret@127.0.0.1:1", "nats://joe:s3cret@h:port", "nats://joe:a@s3cret@127.0.0.1:1",
		"nats://127.0.0.1:1,nats://joe:s3cret@127.0.0.1:2", "nats://joe:a,s3cret@127.0.0.1:1", "nats://joe:s3cret\x7f@127.0.0.1:1",
		"bad://joe:s3cret@127.0.0.1:1",
	} {
		var out bytes.Buffer
		require.Equal(t, 1, run(within(t), []string{"-nats", url, "list"}, &out, &out))
		require.NotContains(t, out.String(), "s3cret", url)
		require.NotEmpty(t, out.String())
	}
}

// A name that no queue can have is an error.
func TestBadQueue(t *testing.T) {
	for _, place := range [][]string{{"-dir", t.TempDir()}, {"-nats", "127.0.0.1:1"}, {"-postgres", "host=127.0.0.1 port=1"}} {
		for _, queue := range []string{"a.b", "*", "a b", "\x1b[2J", "ä"} {
			var out bytes.Buffer
			require.Equal(t, 1, run(within(t), append(place, "-queue", queue, "list"), &out, &out), queue)
			require.Contains(t, out.String(), "-queue "+strconv.Quote(queue))
			require.NotContains(t, out.String(), "\x1b")
		}
	}
}

// What jobs bring along cannot steer the terminal.
func TestShowsNoEscapes(t *testing.T) {
	dir := t.TempDir()
	e, err := embedded.Open(within(t), dir)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	const evil = "\x1b]0;owned\a\x1b[2J\u202e\u009b\r"
	ref, err := q.Add(within(t), durable.Job{Kind: "k", Payload: []byte(evil + "line\n\tend")})
	require.NoError(t, err)
	q.Handle("k", func(context.Context, *durable.Attempt) error {
		return durable.Discard(errors.New("bad" + evil + "\xff\x80"))
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return q.Stats().Dead == 1 }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	require.NoError(t, q.Close())
	for _, args := range [][]string{{"list"}, {"show", string(ref)}, {"stats"}, {"cancel", evil}, {"show", evil}, {"cancel", "-key", evil}} {
		out, _ := twjobs(t, dir, args...)
		for _, r := range out {
			require.True(t, r == '\n' || r == '\t' || unicode.IsPrint(r), "%v: %q", args, out)
		}
		require.True(t, utf8.ValidString(out), "%v: %q", args, out)
	}
	out, _ := twjobs(t, dir, "show", string(ref))
	require.Contains(t, out, `bad\x1b]0;owned\a\x1b[2J\u202e\u009b\r`)
	require.Contains(t, out, "line\n\tend")
}

// The same commands work on a schema of PostgreSQL, which is not made by a look at it.
func TestPostgres(t *testing.T) {
	srv := pgserver.Test(t)
	twjobs := func(args ...string) (string, int) {
		var out bytes.Buffer
		status := run(within(t), append([]string{"-postgres", srv.DSN(), "-queue", "mails"}, args...), &out, &out)
		return out.String(), status
	}
	out, status := twjobs("list")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "call Migrate")
	pool, err := pgxpool.New(within(t), srv.DSN())
	require.NoError(t, err)
	defer pool.Close()
	e, err := postgres.Connect(within(t), pool, postgres.WithSchema("mails"))
	require.NoError(t, err)
	require.NoError(t, e.Migrate(within(t)))
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	defer q.Close()
	ref, err := q.Add(within(t), durable.Job{Kind: "mail", After: time.Hour, Payload: []byte("hello")})
	require.NoError(t, err)
	out, status = twjobs("show", string(ref))
	require.Zero(t, status, out)
	require.Contains(t, out, "payload  hello")
	out, status = twjobs("cancel", string(ref))
	require.Zero(t, status, out)
	out, status = twjobs("list")
	require.Zero(t, status, out)
	require.NotContains(t, out, "mail")
}

func TestSchedules(t *testing.T) {
	dir := t.TempDir()
	e, err := embedded.Open(within(t), dir)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	require.NoError(t, q.SetSchedule(within(t), "night", "CRON_TZ=Europe/Berlin 30 3 * * *", durable.Job{Kind: "report"}))
	_, err = q.Add(within(t), durable.Job{Kind: "nobody's"})
	require.NoError(t, err)
	require.NoError(t, q.Close())
	expect := func(want string, args ...string) {
		t.Helper()
		out, status := twjobs(t, dir, args...)
		require.Zero(t, status, out)
		require.Regexp(t, want, out)
	}
	expect(`night +CRON_TZ=Europe/Berlin 30 3 \* \* \* +report +- +\d`, "schedules")
	expect(`night: paused`, "schedules", "pause", "night")
	expect(`report +- +paused`, "schedules")
	expect(`: goes on`, "schedules", "resume", "night")
	expect(`: runs`, "schedules", "run-now", "night")
	expect(`report +waiting +2`, "stats")
	expect(`: deleted`, "schedules", "delete", "night")
	expect(`^NAME.*\n$`, "schedules")
	out, status := twjobs(t, dir, "schedules", "delete", "night")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "not found")
	require.Eventually(t, func() bool { // what has been due for a moment
		out, status = twjobs(t, dir, "stats")
		return status == 0 && strings.Contains(out, `no worker runs "nobody's"; the first is due`)
	}, patience, 100*time.Millisecond)
}
