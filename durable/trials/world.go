//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
	"github.com/tickwheel/tickwheel/durable/testservers/ports"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// lease is that of the workers: short, so that takeovers happen within the test. It is
// longer than an election takes only on the cluster.
const lease = 4 * time.Second

// concurrency is how many jobs may run again when a process is killed: some times as many
// as are needed at 400 jobs a second.
const concurrency = 64

// patience is how long to wait for what must come. It is a bound, not a measure.
const patience = 2 * time.Minute

// statusFailed is the status of a process of a trial that has returned an error.
const statusFailed = 4

// settings say how hard a fault is.
type settings struct {
	length    time.Duration
	rate      int           // jobs a second
	near, far time.Duration // ahead of which jobs are due: two thirds, and a third
	brief     bool          // it is too short to say how many run twice, or are refused
}

// world is the processes of a trial. Each is in procs from its start until a fault has ended it, and none is left after
// inWorld. Its methods are the means that faults share; a fault and its own steps are functions of a world. One goroutine
// calls them, so that there is no lock.
type world struct {
	dir   string
	set   settings
	end   time.Time // of the fault
	spec  spec      // what is the same for all of them
	known func(*spec)
	ports []int            // of servers, and of their cluster
	pg    *pgserver.Server // instead of these

	embedded bool // all is in one process

	clocks   []*setclock.Clock // of servers
	shift    time.Duration     // how far the engine's clock is ahead now
	farthest time.Duration     // and was at most
	proxy    *proxy            // between clients and the server; nil: none
	routes   map[[2]int]*proxy // on the way from a server to another

	atEnd []func() // what is left to undo
	procs map[string]*proc
	l     *ledger // of what is done to them
	r     result
}

type proc struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// inWorld calls f with processes of an engine, whose ledgers are in a directory. All of them end with it.
func inWorld(dir, engine string, f func(w *world)) {
	w := &world{dir: dir, l: openLedger(dir), embedded: engine == onEmbedded, procs: map[string]*proc{}, known: func(*spec) {},
		spec: spec{Dir: dir, Store: filepath.Join(dir, "store"), Lease: lease, Nodes: nodesOf[engine], Kinds: []string{kind}}}
	if engine == onPostgres {
		w.pg = get(pgserver.New("deadlock_timeout=300ms", "max_connections=200"))
		defer w.pg.Stop()
	}
	reserved := get(ports.Reserve(2 * w.spec.Nodes))
	defer reserved.Release()
	w.ports = reserved.Ports
	defer func() {
		w.killAll()
		for _, undo := range slices.Backward(w.atEnd) {
			undo()
		}
	}()
	f(w)
}

// pause sleeps for a random time.
func pause(least, more time.Duration) { time.Sleep(least + rand.N(more+1)) }

// until calls f until the end of the fault, so many times at least, with the number of the
// call, and after a pause each time.
func (w *world) until(times int, least, more time.Duration, f func(n int)) {
	for n := 0; n < times || time.Now().Before(w.end); n++ {
		pause(least, more)
		f(n)
	}
}

func (w *world) url() string {
	switch {
	case w.proxy != nil:
		return w.proxy.url
	case w.pg != nil:
		return w.pg.DSN()
	}
	var urls []string
	for _, p := range w.ports[:w.spec.Nodes] {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	return strings.Join(urls, ",")
}

// worker returns the name of the i-th worker.
func worker(i int) string { return "worker" + strconv.Itoa(i) }

// start starts a process in a role, under a name, by the spec of all with changes.
func (w *world) start(name, role string, changes ...func(*spec)) {
	s := w.spec
	s.Name, s.Role, s.URL = name, role, w.url()
	for _, change := range changes {
		change(&s)
	}
	cmd := exec.Command(get(os.Executable()))
	cmd.Env = append(os.Environ(), "GOGC=400", envSpec+"="+string(get(json.Marshal(s)))) // so small a heap is collected all the time
	w.launch(name, cmd)
}

// launch starts a process.
func (w *world) launch(name string, cmd *exec.Cmd) {
	cmd.Stderr = os.Stderr
	must(cmd.Start())
	p := &proc{cmd: cmd, done: make(chan struct{})}
	go func() { cmd.Wait(); close(p.done) }()
	w.procs[name] = p
}

// startServer starts the i-th server.
func (w *world) startServer(i int) {
	w.start("server"+strconv.Itoa(i), "server", func(s *spec) {
		s.Name, s.Store = "n"+strconv.Itoa(i), w.spec.Store+strconv.Itoa(i)
		s.Port, s.Routes, s.Clock = w.ports[i], routesOf(i, w.ports[w.spec.Nodes:]), ""
		for to, p := range w.routes {
			if to[0] == i {
				s.Routes[(to[1]-i+s.Nodes)%s.Nodes] = p.port
			}
		}
		if i < len(w.clocks) {
			s.Clock = w.clockPath(i)
		}
	})
}

// startServers starts all there are to be that do not run by themselves.
func (w *world) startServers() {
	for i := range w.spec.Nodes {
		w.startServer(i)
	}
}

// startAll starts servers, a producer and two workers, or the process that has all, and waits until they work.
// The changes are of the workers.
func (w *world) startAll(changes ...func(*spec)) {
	w.awaitWork(func() {
		w.startServers()
		w.startClients(changes...)
	})
}

func (w *world) startClients(changes ...func(*spec)) {
	if w.embedded {
		w.start("embedded", "embedded")
		return
	}
	w.start("producer", "producer")
	w.start(worker(0), "worker", changes...)
	w.start(worker(1), "worker", changes...)
}

// freezeFor stops a process for a while.
func (w *world) freezeFor(name string, d time.Duration) {
	p := w.procs[name].cmd.Process
	must(p.Signal(syscall.SIGSTOP))
	time.Sleep(d)
	must(p.Signal(syscall.SIGCONT))
	w.r.Happened++
}

// kill ends a process with kill -9.
func (w *world) kill(name string) {
	w.procs[name].kill()
	delete(w.procs, name)
	w.r.Happened++
}

func (p *proc) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

func (p *proc) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends a process in peace. None may have ended before that by itself.
func (w *world) stop(name string) {
	p := w.procs[name]
	died := p.hasEnded()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		died = true
		p.kill()
	}
	if died {
		w.r.Broken.Died++
		fmt.Fprintln(os.Stderr, name, "has ended by itself, or not when it was told to:", p.cmd.ProcessState)
	}
	delete(w.procs, name)
}

func (w *world) killAll() {
	for _, p := range w.procs {
		p.kill()
	}
	clear(w.procs)
}

// stopClients ends all but the servers in peace.
func (w *world) stopClients() {
	for _, name := range slices.Sorted(maps.Keys(w.procs)) {
		if !strings.HasPrefix(name, "server") {
			w.stop(name)
		}
	}
}

// drain lets one worker run what is left.
func (w *world) drain() {
	// What a worker that has ended has not handed back comes after the lease. That time
	// passes here, where the lease is long.
	if w.spec.Lease > lease {
		w.pass(w.spec.Lease + time.Minute)
	}
	w.start("drain", "drain", w.known, last)
	for size, since := int64(0), time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if p := w.procs["drain"]; p.hasEnded() {
			switch status := p.cmd.ProcessState; {
			case status.Success():
				return
			case status.ExitCode() != statusFailed: // else the engine did not answer in time
				must(fmt.Errorf("the process that runs what is left: %v", status))
			}
			w.start("drain", "drain", w.known, last)
		}
		if now := w.written(); now > size {
			size, since = now, time.Now()
		}
		if time.Since(since) > patience {
			must(errors.New("what is left does not end"))
		}
	}
}

// written returns how large the ledgers are together.
func (w *world) written() (size int64) {
	for _, one := range sizesOf(w.dir) {
		size += one
	}
	return size
}

// awaitWork calls f, and waits until the ledgers have grown, and the schedules are stored that there are to
// be, but not for ever.
func (w *world) awaitWork(f func()) {
	size := w.written()
	f()
	for began := time.Now(); w.written() == size && time.Since(began) < patience; {
		time.Sleep(10 * time.Millisecond)
	}
	w.awaitPromised()
}

// awaitGoingOn waits until jobs are accepted and end, and calls f meanwhile.
func (w *world) awaitGoingOn(f func()) {
	for _, what := range []rune{accepted, finished} {
		began, before := time.Now(), sizesOf(w.dir)
		for ; linesIn(w.dir, "", what, before) == 0; time.Sleep(50 * time.Millisecond) {
			if f(); time.Since(began) > 2*patience {
				must(fmt.Errorf("stuck: no line %c for %v", what, 2*patience))
			}
		}
	}
}
