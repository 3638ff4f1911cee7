// Package rolling_test upgrades workers one after the other, as a deployment does.
package rolling_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
)

// lastRelease is what workers are upgraded from: the tag of the last release, and until there
// is one a commit, in which the schema of PostgreSQL's newest version is as it will be
// released. The printed steps of a release say to raise it.
const lastRelease = "1e20be279cfdd74fee57efcfdf4f8c2e30efc41d"

// patience is how long the test waits for what must come. It is a bound, not a measure.
const patience = 5 * time.Minute

// build builds the worker in a directory, with the packages of the checkout around it.
func build(t *testing.T, dir string) string {
	name := filepath.Join(t.TempDir(), "worker.exe") // as Windows wants it
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", name, ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return name
}

// ofLastRelease builds the worker with the packages of the last release. A copy that has no
// history, as a download of a module has none, cannot.
func ofLastRelease(t *testing.T) string {
	out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-toplevel").Output()
	if err != nil || exec.CommandContext(t.Context(), "git", "cat-file", "-e", lastRelease+"^{commit}").Run() != nil {
		t.Skip("the last release is not in this checkout's history:", lastRelease)
	}
	archive, dir := filepath.Join(t.TempDir(), "release.tar"), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "git", "archive", "-o", archive, lastRelease)
	cmd.Dir = strings.TrimSpace(string(out))
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	source, err := os.ReadFile("worker/main.go")
	require.NoError(t, err)
	worker := filepath.Join(dir, "durable", "trials", "rolling", "worker")
	require.NoError(t, os.MkdirAll(worker, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(worker, "main.go"), source, 0o600))
	return build(t, worker)
}

// ledger is what workers have said.
type ledger struct {
	t     *testing.T
	mu    sync.Mutex
	added map[string]bool
	ran   map[string][]string // by whom
	older int                 // workers that have ended because of the store's version
}

// process is a worker.
type process struct {
	cmd   *exec.Cmd
	input io.Closer
	read  chan bool
	err   bytes.Buffer
}

const jobs = 200 // that each worker adds

// start starts a worker, and returns when it has added its jobs.
func (l *ledger) start(name, worker, place string) *process {
	p := &process{cmd: exec.CommandContext(l.t.Context(), worker, place, strconv.Itoa(jobs)), read: make(chan bool)}
	in, err := p.cmd.StdinPipe()
	require.NoError(l.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(l.t, err)
	p.input, p.cmd.Stderr = in, &p.err
	require.NoError(l.t, p.cmd.Start())
	ready := make(chan bool)
	go func() {
		defer close(p.read)
		added := 0
		for s := bufio.NewScanner(out); s.Scan(); {
			word, ref, _ := strings.Cut(s.Text(), " ")
			l.mu.Lock()
			switch word {
			case "added":
				l.added[ref] = true
				if added++; added == jobs {
					close(ready)
				}
			case "ran":
				l.ran[ref] = append(l.ran[ref], name)
			case "older":
				l.older++
			}
			l.mu.Unlock()
		}
	}()
	select {
	case <-ready:
	case <-p.read:
		require.Fail(l.t, "a worker has ended before it has added its jobs", "%s: %v: %s", name, p.cmd.Wait(), &p.err)
	case <-time.After(patience):
		require.Fail(l.t, "a worker does not add its jobs", name)
	}
	return p
}

// stop has a worker drain.
func (l *ledger) stop(p *process) {
	require.NoError(l.t, p.input.Close())
	<-p.read
	require.NoError(l.t, p.cmd.Wait(), "%s", &p.err)
}

// Workers of the last release are replaced by new ones, one after the other, while jobs are
// added and run: each job runs, and but for what the old have given up because they are told
// to, once.
func TestRolling(t *testing.T) {
	old := ofLastRelease(t)
	young := build(t, "worker")
	for name, place := range map[string]func(*testing.T) string{
		"JetStream":  natsServer,
		"PostgreSQL": func(t *testing.T) string { return pgserver.Test(t).DSN() },
	} {
		t.Run(name, func(t *testing.T) {
			place := place(t)
			l := &ledger{t: t, added: map[string]bool{}, ran: map[string][]string{}}
			first := l.start("old", old, place)
			second := l.start("old", old, place)
			third := l.start("young", young, place)
			l.stop(first)
			fourth := l.start("young", young, place)
			l.stop(second)
			require.Eventually(t, func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.ran) == len(l.added)
			}, patience, 10*time.Millisecond)
			l.stop(third)
			l.stop(fourth)
			l.check()
		})
	}
}

// check looks at what there is when all have ended.
func (l *ledger) check() {
	require.Len(l.t, l.added, 4*jobs)
	runs := map[string]int{}
	for ref, by := range l.ran {
		require.True(l.t, l.added[ref], ref)
		require.True(l.t, len(by) == 1 || l.older > 0, "%s: %v", ref, by)
		for _, name := range by {
			runs[name]++
		}
	}
	l.t.Logf("%v; %d were told that they are too old", runs, l.older)
	require.Positive(l.t, runs["young"])
	require.Positive(l.t, runs["old"])
}

func natsServer(t *testing.T) string {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(patience))
	return srv.ClientURL()
}
