package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// The test is the program, too, when REMINDERS_TEST is set.
func TestMain(m *testing.M) {
	if os.Getenv("REMINDERS_TEST") == "" {
		os.Exit(m.Run())
	}
	main()
}

func reminders(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.Equal(t, want, run(within(t), args, &out, &out), "%v: %s", args, &out)
	return out.String()
}

// patience is how long a process may take. It is a bound, not a measure.
const patience = 3 * time.Minute

// within returns a context that ends with patience: an engine tries for as long as it may.
// Without a deadline it asks once.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// runUntil starts the program as a process, waits until it has printed what is wanted, kills
// it, and returns all that it has printed.
func runUntil(t *testing.T, want string, args ...string) string {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "REMINDERS_TEST=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	timeout := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timeout.Stop()
	seen := ""
	for buf := make([]byte, 1000); !strings.Contains(seen, want); {
		n, err := out.Read(buf)
		require.NoError(t, err, "printed only %q", seen)
		seen += string(buf[:n])
	}
	require.NoError(t, cmd.Process.Kill()) // kill -9
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	cmd.Wait()
	return seen + string(rest)
}

// addSoon adds a reminder, runs the program, and kills it before the reminder is due. It returns
// its text. On a slow machine it may be due before: then another one is added.
func addSoon(t *testing.T, store ...string) string {
	for delay := 2 * time.Second; ; delay *= 2 {
		require.Less(t, delay, patience)
		text := "call back after " + delay.String()
		reminders(t, 0, append(store, "add", delay.String(), text)...)
		if out := runUntil(t, "waiting", append(store, "run")...); !strings.Contains(out, text) {
			return text
		}
	}
}

func TestKilledAndStartedAgain(t *testing.T) {
	dir := t.TempDir()
	ref := strings.TrimSpace(reminders(t, 0, "-dir", dir, "add", "1h", "never", "mind"))
	soon := addSoon(t, "-dir", dir)
	out := reminders(t, 0, "-dir", dir, "list")
	require.Contains(t, out, "never mind")
	require.Contains(t, out, soon)
	require.Regexp(t, regexp.MustCompile(`\d reminders\n$`), out)
	runUntil(t, soon, "-dir", dir, "run")
	require.Equal(t, "canceled\n", reminders(t, 0, "-dir", dir, "cancel", ref))
	require.Contains(t, reminders(t, 1, "-dir", dir, "cancel", ref), "too late")
}

func TestOnAServer(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	require.NoError(t, err)
	srv.Start()
	require.True(t, srv.ReadyForConnections(patience))
	defer srv.Shutdown()
	url := srv.ClientURL()
	reminders(t, 0, "-nats", url, "add", "0s", "now")
	runUntil(t, "now", "-nats", url, "run")
}

// database returns the address of a PostgreSQL server that ends with the test. The helper
// is of durable's module.
func database(t *testing.T) string {
	cmd := exec.Command("go", "run", "./testservers/pgserver/serve")
	cmd.Dir = "../../../durable"
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	dsn, err := bufio.NewReader(stdout).ReadString('\n')
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	if err != nil {
		cmd.Wait()
		if strings.Contains(stderr.String(), "no PostgreSQL server is installed") && os.Getenv("TICKWHEEL_POSTGRES") != "required" {
			t.Skip(stderr.String())
		}
		require.NoError(t, err, stderr.String())
	}
	return strings.TrimSpace(dsn)
}

// An order and its reminder are there, or neither is.
func TestOrders(t *testing.T) {
	dsn := database(t)
	require.Contains(t, reminders(t, 1, "-postgres", dsn, "order", "1h", ""), "violates check constraint")
	require.Contains(t, reminders(t, 1, "-postgres", dsn, "order", "soon", "x"), "invalid duration")
	require.Contains(t, reminders(t, 0, "-postgres", dsn, "list"), "0 reminders")
	reminders(t, 0, "-postgres", dsn, "order", "1h", "two", "coffees")
	out := reminders(t, 0, "-postgres", dsn, "list")
	require.Contains(t, out, "follow up: two coffees")
	runUntil(t, addSoon(t, "-postgres", dsn), "-postgres", dsn, "run")
	pool, err := pgxpool.New(within(t), dsn)
	require.NoError(t, err)
	defer pool.Close()
	var orders []string
	require.NoError(t, pool.QueryRow(within(t), "select array_agg(item) from orders").Scan(&orders))
	require.Equal(t, []string{"two coffees"}, orders)
}

func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{
		{}, {"add"}, {"add", "1s"}, {"list", "x"}, {"cancel"}, {"x"}, {"-x"}, {"-replicas", "0", "list"},
		{"order", "1h", "x"}, {"-nats", "x", "-postgres", "x", "list"},
	} {
		require.Contains(t, reminders(t, 2, args...), "usage: reminders", args)
	}
	require.Contains(t, reminders(t, 1, "-dir", t.TempDir(), "add", "soon", "x"), "invalid duration")
	require.Contains(t, reminders(t, 1, "-nats", "nats://127.0.0.1:1", "list"), "nats://127.0.0.1:1")
	require.Contains(t, reminders(t, 1, "-postgres", "postgres://127.0.0.1:1/x", "list"), "postgres: Connect")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 1, run(ctx, []string{"-dir", t.TempDir(), "list"}, &bytes.Buffer{}, &bytes.Buffer{}))
}
