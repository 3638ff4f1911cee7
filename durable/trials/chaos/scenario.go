//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
	"github.com/tickwheel/tickwheel/durable/internal/ports"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// lease is that of the workers: short, so that takeovers happen within the test. It is
// longer than an election takes only on the cluster.
const lease = 4 * time.Second

// patience is how long to wait for what must come. It is a bound, not a measure.
const patience = 2 * time.Minute

// result is what a fault has shown.
type result struct {
	account
	Kills, Freezes int
	Died           []string      // processes that have ended by themselves
	Hung           int           // that had to be killed, since they did not end when they were told to
	Restarts       int           // of processes that have said that they cannot go on
	Provoked       int           // times that the fault was seen, where nothing is killed
	Gap            time.Duration // the longest time without an accepted job, on the cluster
	TwiceLimit     float64       // of the accepted
	CheckTwice     bool
	RejectedLimit  float64 // of the accepted; 0: none
	Scheduled      int     // schedules
	CheckLimits    bool
	Brief          bool
}

func (r result) String() string {
	s := fmt.Sprintf("%v; %d kills, %d freezes", r.account, r.Kills, r.Freezes)
	if r.Provoked > 0 {
		s += fmt.Sprintf(", %d times provoked", r.Provoked)
	}
	if r.Restarts > 0 {
		s += fmt.Sprintf(", %d times started again", r.Restarts)
	}
	if r.Gap > 0 {
		s += fmt.Sprintf("; longest time without an accepted job %v", r.Gap.Round(100*time.Millisecond))
	}
	return s
}

func (r result) check() error {
	switch {
	case r.Lost > 0:
		return fmt.Errorf("%d lost, among them %v", r.Lost, r.LostRefs[:min(3, len(r.LostRefs))])
	case r.Missing+r.Doubled > 0:
		return fmt.Errorf("%d occurrences are missing, and %d were stored twice, of %v", r.Missing, r.Doubled, r.LostRefs[:min(3, len(r.LostRefs))])
	case r.Series != r.Scheduled || r.Occurrences < r.Scheduled:
		return fmt.Errorf("%d of %d schedules, with %d occurrences", r.Series, r.Scheduled, r.Occurrences)
	case r.CheckLimits && r.Limits.check(r.Brief) != nil:
		return r.Limits.check(r.Brief)
	case r.Early > 0:
		return fmt.Errorf("%d began before they were due", r.Early)
	case r.CanceledAndRan > 0:
		return fmt.Errorf("%d canceled and ran", r.CanceledAndRan)
	case len(r.Died) > 0:
		return fmt.Errorf("these have ended by themselves: %v", r.Died)
	case r.Hung+r.Silent > 0:
		return fmt.Errorf("%d processes did not end, and %d calls of Health did not return", r.Hung, r.Silent)
	case r.Accepted == 0:
		return errors.New("nothing was accepted")
	case r.Wrong > 0:
		return fmt.Errorf("%d times Add has returned ErrExists for a job without a key", r.Wrong)
	case float64(r.Rejected) > r.RejectedLimit*float64(r.Accepted) && r.RejectedLimit > 0:
		return fmt.Errorf("%d were not accepted, more than %.1f %%", r.Rejected, 100*r.RejectedLimit)
	case float64(r.Twice) > r.TwiceLimit*float64(r.Accepted) && r.CheckTwice:
		return fmt.Errorf("%d ran twice, more than %.1f %%", r.Twice, 100*r.TwiceLimit)
	}
	return nil
}

// settings say how hard a fault is.
type settings struct {
	length    time.Duration
	rate      int           // jobs a second
	near, far time.Duration // ahead of which jobs are due: two thirds, and a third
	leaders   int           // of the cluster that are killed at the least
	brief     bool          // it is too short to say how many run twice, or are refused
}

// world is the processes of a scenario.
type world struct {
	dir   string
	set   settings
	ports []int
	nodes int
	pg    *pgserver.Server // instead of nodes
	env   []string         // of all clients, and of what is embedded
	known []string         // the environment of processes that know the schedules
	lease time.Duration

	clocks   []*setclock.Clock // of servers
	shift    time.Duration     // how far the engine's clock is ahead now
	farthest time.Duration     // and was at most
	shifted  bool              // PostgreSQL has the functions for that
	proxy    *proxy            // between clients and the server; nil: none
	broken   *proxy            // the same, also when new clients go without it
	unmount  string            // a file system of the scenario; "": none

	poolSize int // of each client's pool, if not 0
	procs    map[string]*proc
	r        result
}

type proc struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// fault is what happens until end, to the processes of one engine.
type fault struct {
	engine string
	run    func(w *world, end time.Time) error
}

// What faults are of.
const (
	onJetStream = "jetstream"
	onPostgres  = "postgres"
)

// scenarios has the faults by name.
var scenarios = map[string]fault{
	"embedded": {onJetStream, (*world).killEmbedded}, // kill -9 of the process that has server, worker and producer
	"worker":   {onJetStream, (*world).killWorkers},  // kill -9 of workers, beside a server that stays
	"server":   {onJetStream, (*world).killServer},   // kill -9 of the server, beside workers and a producer that stay
	"freeze":   {onJetStream, (*world).freeze},       // SIGSTOP of a worker for longer than its lease, then SIGCONT
	"cluster":  {onJetStream, (*world).killLeader},   // kill -9 of the stream's leader of three nodes

	"clock":          {onJetStream, (*world).turnClock},    // the server's clock is set while it runs, forward and back, by seconds and hours
	"embedded-clock": {onJetStream, (*world).turnEmbedded}, // the same of the process that has all
	"cluster-clock":  {onJetStream, (*world).turnLeaders},  // three nodes whose clocks are a minute apart lead by turns
	"hold":           {onJetStream, (*world).hold},         // jobs wait in workers for hours
	"lease":          {onJetStream, (*world).loseLease},    // it is lost between claim and begin
	"proxy":          {onJetStream, (*world).disturb},      // connections are cut, held up, and half open
	"fleet":          {onJetStream, (*world).mixFleet},     // workers of different kinds, that are killed and come back with others
	"tool":           {onJetStream, (*world).useTool},      // operators list, cancel, move and redrive jobs

	"limits":    {onJetStream, (*world).harmLimited}, // workers die, freeze and end while limits hold, and pauses come and go
	"pg-limits": {onPostgres, (*world).harmLimited},  // as above

	"schedules": {onJetStream, (*world).killScheduled}, // kill -9 of workers that run a thousand schedules
	"deploy":    {onJetStream, (*world).deploy},        // a release that knows schedules is rolled out, and back

	"edits":         {onJetStream, edited((*world).killServer)}, // schedules are changed all the time while the server is killed
	"embedded-disk": {onJetStream, (*world).fillDisk},           // the disk of the process that has all is filled and freed
	"half-open":     {onJetStream, (*world).sever},              // connections swallow all, and nobody is told
	"pg-half-open":  {onPostgres, (*world).sever},               // as above

	"embedded-edits": {onJetStream, edited((*world).killEmbedded)}, // the same of the process that has all
	"cluster-edits":  {onJetStream, edited((*world).killLeader)},   // and of the stream's leader of three nodes
	"pg-edits":       {onPostgres, edited((*world).killPostgres)},  // as above

	"pg-schedules": {onPostgres, (*world).killScheduled}, // as above
	"pg-deploy":    {onPostgres, (*world).deploy},        // as above

	"pg-worker":    {onPostgres, (*world).killWorkers},
	"pg-freeze":    {onPostgres, (*world).freeze},
	"pg-server":    {onPostgres, (*world).killPostgres},      // kill -9 of the server, or of one of its backends
	"pg-terminate": {onPostgres, (*world).terminateBackends}, // pg_terminate_backend in the middle of a claim
	"pg-pool":      {onPostgres, (*world).exhaustPools},      // pools of two connections with many users
	"pg-clock":     {onPostgres, (*world).moveClock},         // the server's clock an hour from the workers', who are killed, too
	"pg-timeout":   {onPostgres, (*world).timeOut},           // statement_timeout of some ms, now and then
	"pg-deadlock":  {onPostgres, (*world).provokeDeadlocks},  // a transaction that locks jobs in the wrong order

	"pg-set-clock":    {onPostgres, (*world).turnPostgres},   // the server's clock is set while it runs
	"pg-hold":         {onPostgres, (*world).hold},           // as above
	"pg-lease":        {onPostgres, (*world).loseLease},      // as above
	"pg-commit":       {onPostgres, (*world).failCommits},    // a fifth of the commits fails
	"pg-serializable": {onPostgres, (*world).beSerializable}, // transactions are serializable if they do not say otherwise
	"pg-proxy":        {onPostgres, (*world).disturb},        // as above
	"pg-fleet":        {onPostgres, (*world).mixFleet},       // as above
	"pg-tool":         {onPostgres, (*world).useTool},        // as above, and one of them locks the table
}

func runScenario(name, dir string, set settings) (result, error) {
	w := &world{dir: dir, set: set, procs: map[string]*proc{}, nodes: 1, lease: lease}
	w.r.TwiceLimit, w.r.CheckTwice, w.r.Brief = 0.02, !set.brief, set.brief
	if strings.HasPrefix(name, "cluster") {
		w.nodes = 3
	}
	if scenarios[name].engine == onPostgres {
		w.r.TwiceLimit = 0.005
		if err := w.startPostgres(); err != nil {
			return w.r, err
		}
		defer w.pg.Stop()
	} else {
		reserved, err := ports.Reserve(2 * w.nodes)
		if err != nil {
			return w.r, err
		}
		defer reserved.Release()
		w.ports = reserved.Ports
	}
	defer w.killAll()
	defer w.closeProxy()
	defer w.endMount()
	stopGap := w.watchGap()
	err := scenarios[name].run(w, time.Now().Add(set.length))
	if set.brief {
		w.r.RejectedLimit = 0
	}
	if gap := stopGap(); name == "cluster" || strings.HasSuffix(name, "half-open") {
		w.r.Gap = gap
	}
	if err == nil {
		err = w.drain(name)
	}
	w.killAll()
	var auditErr error
	w.r.account, auditErr = audit(dir)
	return w.r, errors.Join(err, auditErr)
}

func (w *world) url() string {
	if w.proxy != nil {
		return w.proxy.url
	}
	if w.pg != nil {
		if w.poolSize > 0 {
			return fmt.Sprintf("%s&pool_max_conns=%d", w.pg.DSN(), w.poolSize)
		}
		return w.pg.DSN()
	}
	var urls []string
	for _, p := range w.ports[:w.nodes] {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	return strings.Join(urls, ",")
}

// start starts a process in a role, under a name.
func (w *world) start(name, role string, env ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envRole+"="+role, envDir+"="+w.dir, envStore+"="+filepath.Join(w.dir, "store"),
		envRate+"="+strconv.Itoa(w.set.rate), envNear+"="+w.set.near.String(), envFar+"="+w.set.far.String(), envLease+"="+w.lease.String(), envNodes+"="+strconv.Itoa(w.nodes))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &proc{cmd: cmd, done: make(chan struct{})}
	go func() { cmd.Wait(); close(p.done) }()
	w.procs[name] = p
	return nil
}

func (w *world) startClient(name, role string, env ...string) error {
	return w.start(name, role, slices.Concat(w.env, env, []string{envURL + "=" + w.url(), envName + "=" + name})...)
}

// startServer starts the i-th server.
func (w *world) startServer(i int) error {
	env := []string{envName + "=n" + strconv.Itoa(i), envPort + "=" + strconv.Itoa(w.ports[i])}
	env = append(env, envStore+"="+filepath.Join(w.dir, "store"+strconv.Itoa(i)))
	if i < len(w.clocks) {
		env = append(env, envClock+"="+w.clockPath(i))
	}
	if w.nodes > 1 {
		routes := []string{strconv.Itoa(w.ports[w.nodes+i])}
		for k := range w.nodes {
			if k != i {
				routes = append(routes, strconv.Itoa(w.ports[w.nodes+k]))
			}
		}
		env = append(env, envRoutes+"="+strings.Join(routes, ","))
	}
	return w.start("server"+strconv.Itoa(i), "server", env...)
}

func (w *world) signal(name string, sig syscall.Signal) error {
	return w.procs[name].cmd.Process.Signal(sig)
}

// kill ends a process with kill -9.
func (w *world) kill(name string) {
	p := w.procs[name]
	p.cmd.Process.Kill()
	<-p.done
	delete(w.procs, name)
	w.r.Kills++
}

// end ends a process in peace. None may have ended before that by itself.
func (w *world) end(name string) {
	p := w.procs[name]
	select {
	case <-p.done:
		w.r.Died = append(w.r.Died, fmt.Sprint(name, ": ", p.cmd.ProcessState))
	default:
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		w.r.Hung++
		p.cmd.Process.Kill()
		<-p.done
	}
	delete(w.procs, name)
}

func (w *world) killAll() {
	for _, p := range w.procs {
		p.cmd.Process.Kill()
		<-p.done
	}
	clear(w.procs)
}

// drain ends all but the servers, and lets one worker run what is left.
func (w *world) drain(scenario string) error {
	start := func() error { return w.startClient("drain", "drain", w.known...) }
	if strings.HasPrefix(scenario, "embedded") {
		start = func() error { return w.start("drain", "drain", w.env...) }
	}
	for _, name := range []string{"producer", "tool", "ruler", "worker0", "worker1", "worker2", "embedded"} {
		if w.procs[name] != nil {
			w.end(name)
		}
	}
	// What a worker that has ended has not handed back comes after the lease. That time
	// passes here, where the lease is long.
	if w.lease > lease {
		if err := w.pass(w.lease + time.Minute); err != nil {
			return err
		}
	}
	if err := start(); err != nil {
		return err
	}
	for size, since := int64(0), time.Now(); ; {
		select {
		case <-w.procs["drain"].done:
			// One that could not begin, since the engine did not answer in time, is
			// started again.
			if status := w.procs["drain"].cmd.ProcessState; status.ExitCode() != statusFailed {
				if !status.Success() {
					return fmt.Errorf("the process that runs what is left: %v", status)
				}
				return nil
			}
			if err := start(); err != nil {
				return err
			}
		case <-time.After(100 * time.Millisecond):
		}
		if now := w.written(); now > size {
			size, since = now, time.Now()
		}
		if time.Since(since) > patience {
			return errors.New("what is left does not end")
		}
	}
}

// written returns how large the ledgers are.
func (w *world) written() (size int64) {
	files, _ := filepath.Glob(filepath.Join(w.dir, "ledger-*"))
	for _, f := range files {
		if fi, err := os.Stat(f); err == nil {
			size += fi.Size()
		}
	}
	return size
}

// watchGap watches the ledgers for what is accepted, and returns a function that tells
// the longest time without.
func (w *world) watchGap() func() time.Duration {
	stop, gaps := make(chan struct{}), make(chan time.Duration)
	go func() {
		read, since, longest := map[string]int64{}, time.Time{}, time.Duration(0)
		for {
			if w.newly(read, accepted) {
				if !since.IsZero() {
					longest = max(longest, time.Since(since))
				}
				since = time.Now()
			}
			select {
			case <-stop:
				gaps <- longest
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() time.Duration { close(stop); return <-gaps }
}

// newly reports whether the ledgers have a line of a kind beyond what was read.
func (w *world) newly(read map[string]int64, what byte) (found bool) {
	files, _ := filepath.Glob(filepath.Join(w.dir, "ledger-*"))
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		lines, _ := io.ReadAll(io.NewSectionReader(f, read[name], 1<<30))
		f.Close()
		read[name] += int64(len(lines))
		found = found || bytes.Contains(lines, []byte{what, ' '})
	}
	return found
}

// killEmbedded kills a process some time after it has begun to work: at any moment of
// that, and not again and again before it has begun where that takes long.
func (w *world) killEmbedded(end time.Time) error {
	for w.r.Kills == 0 || time.Now().Before(end) {
		size := w.written()
		if err := w.start("embedded", "embedded", w.env...); err != nil {
			return err
		}
		w.awaitWork(size)
		time.Sleep(time.Second + rand.N(4*time.Second))
		w.kill("embedded")
	}
	return nil
}

// awaitWork waits until the ledgers have grown, and the schedules are stored that there are to
// be, but not for ever.
func (w *world) awaitWork(size int64) {
	for began := time.Now(); w.written() == size && time.Since(began) < patience; {
		time.Sleep(10 * time.Millisecond)
	}
	w.awaitPromised()
}

// startAll starts a server, a producer and two workers, and waits until they work. The
// environment is that of the workers.
func (w *world) startAll(env ...string) error {
	if w.pg == nil {
		if err := w.startServer(0); err != nil {
			return err
		}
	}
	err := w.startClients(env...)
	w.awaitWork(0)
	return err
}

func (w *world) startClients(env ...string) error {
	return errors.Join(w.startClient("producer", "producer"),
		w.startClient("worker0", "worker", env...), w.startClient("worker1", "worker", env...))
}

func (w *world) killWorkers(end time.Time) error {
	if err := w.startAll(); err != nil {
		return err
	}
	for n := 0; n == 0 || time.Now().Before(end); n++ {
		time.Sleep(time.Second + rand.N(3*time.Second))
		name := "worker" + strconv.Itoa(n%2)
		w.kill(name)
		if err := w.startClient(name, "worker"); err != nil {
			return err
		}
	}
	return nil
}

// fleets are the kinds of workers that come one after the other.
var fleets = []string{kind, kind + " other", "other " + few, kind + " other " + few, few + " " + kind}

// mixFleet has workers that run different kinds, and deploys them anew all the time, with
// other kinds: some end in peace, and some are killed. One kind nobody runs until the end.
func (w *world) mixFleet(end time.Time) error {
	if w.pg == nil {
		if err := w.startServer(0); err != nil {
			return err
		}
	}
	if err := w.startClient("producer", "producer", envKinds+"="+strings.Join(kindsOf("drain"), " ")); err != nil {
		return err
	}
	for n := 0; n < 4 || time.Now().Before(end); n++ {
		name := "worker" + strconv.Itoa(n%3)
		switch {
		case w.procs[name] == nil:
		case n%2 == 0:
			w.end(name)
		default:
			w.kill(name)
		}
		if err := w.startClient(name, "worker", envKinds+"="+fleets[n%len(fleets)]); err != nil {
			return err
		}
		time.Sleep(time.Second/2 + rand.N(min(3*time.Second, w.set.length/6)))
	}
	return nil
}

func (w *world) killServer(end time.Time) error {
	if err := w.startAll(); err != nil {
		return err
	}
	for w.r.Kills == 0 || time.Now().Before(end) {
		time.Sleep(2*time.Second + rand.N(4*time.Second))
		w.kill("server0")
		time.Sleep(rand.N(time.Second))
		size := w.written()
		if err := w.startServer(0); err != nil {
			return err
		}
		w.awaitWork(size)
	}
	return nil
}

func (w *world) freeze(end time.Time) error {
	w.r.CheckTwice = false // what was running when it was frozen runs elsewhere: that is the promise
	if err := w.startAll(); err != nil {
		return err
	}
	for n := 0; n == 0 || time.Now().Before(end); n++ {
		name := "worker" + strconv.Itoa(n%2)
		time.Sleep(time.Second + rand.N(2*time.Second))
		if err := w.signal(name, syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(lease + rand.N(2*lease))
		if err := w.signal(name, syscall.SIGCONT); err != nil {
			return err
		}
		w.r.Freezes++
	}
	return nil
}
