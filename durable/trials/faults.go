//go:build unix

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is what a fault has shown.
type result struct {
	account
	Kills, Freezes int
	Died           []string      // processes that have ended by themselves
	Hung           int           // that had to be killed, since they did not end when they were told to
	Restarts       int           // of processes that have said that they cannot go on
	Provoked       int           // times that the fault was seen, where nothing is killed
	Gap            time.Duration // the longest time without an accepted job, where that is shown
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

// check returns an error if a promise was broken, or the fault proves nothing.
func (r result) check() error {
	of := float64(r.Accepted)
	for _, p := range []struct {
		bad  bool
		text string
		args []any
	}{
		{r.Lost > 0, "%d lost, among them %v", []any{r.Lost, r.LostRefs[:min(3, len(r.LostRefs))]}},
		{r.Missing+r.Doubled > 0, "%d occurrences are missing, and %d were stored twice, of %v", []any{r.Missing, r.Doubled, r.LostRefs[:min(3, len(r.LostRefs))]}},
		{r.Series != r.Scheduled || r.Occurrences < r.Scheduled, "%d of %d schedules, with %d occurrences", []any{r.Series, r.Scheduled, r.Occurrences}},
		{r.CheckLimits && r.Limits.check(r.Brief) != nil, "%v", []any{r.Limits.check(r.Brief)}},
		{r.Keys.check(r.Brief) != nil, "%v", []any{r.Keys.check(r.Brief)}},
		{r.Early > 0, "%d began before they were due", []any{r.Early}},
		{r.CanceledAndRan > 0, "%d canceled and ran", []any{r.CanceledAndRan}},
		{len(r.Died) > 0, "these have ended by themselves: %v", []any{r.Died}},
		{r.Hung+r.Silent > 0, "%d processes did not end, and %d calls of Health did not return", []any{r.Hung, r.Silent}},
		{r.Accepted == 0, "nothing was accepted", nil},
		{r.Wrong > 0, "%d times Add has returned ErrExists for a job without a key", []any{r.Wrong}},
		{r.RejectedLimit > 0 && float64(r.Rejected) > r.RejectedLimit*of, "%d were not accepted, more than %.1f %%", []any{r.Rejected, 100 * r.RejectedLimit}},
		{r.CheckTwice && float64(r.Twice) > r.TwiceLimit*of, "%d ran twice, more than %.1f %%", []any{r.Twice, 100 * r.TwiceLimit}},
	} {
		if p.bad {
			return fmt.Errorf(p.text, p.args...)
		}
	}
	return nil
}

// fault is what happens until the end of the fault, to the processes of one engine.
type fault struct {
	engine string
	run    func(w *world)
	nodes  int // 0: one
}

// faults are by name.
var faults = map[string]fault{
	"embedded": {onEmbedded, (*world).killEmbedded, 0}, // kill -9 of the process that has server, worker and producer
	"worker":   {onJetStream, (*world).killWorkers, 0}, // kill -9 of workers, beside a server that stays
	"server":   {onJetStream, (*world).killServer, 0},  // kill -9 of the server, beside workers and a producer that stay
	"freeze":   {onJetStream, (*world).freeze, 0},      // SIGSTOP of a worker for longer than its lease, then SIGCONT
	"cluster":  {onJetStream, (*world).killLeader, 3},  // kill -9 of the stream's leader of three nodes

	"clock":          {onJetStream, (*world).turnClock, 0},   // the server's clock is set while it runs, forward and back, by seconds and hours
	"embedded-clock": {onEmbedded, (*world).turnEmbedded, 0}, // the same of the process that has all
	"cluster-clock":  {onJetStream, (*world).turnLeaders, 3}, // three nodes whose clocks are a minute apart lead by turns
	"hold":           {onJetStream, (*world).hold, 0},        // jobs wait in workers for hours
	"lease":          {onJetStream, (*world).loseLease, 0},   // it is lost between claim and begin
	"proxy":          {onJetStream, (*world).disturb, 0},     // connections are cut, held up, and half open
	"fleet":          {onJetStream, (*world).mixFleet, 0},    // workers of different kinds, that are killed and come back with others
	"tool":           {onJetStream, (*world).useTool, 0},     // operators list, cancel, move and redrive jobs

	"limits":    {onJetStream, (*world).harmLimited, 0}, // workers die, freeze and end while limits hold, and pauses come and go
	"pg-limits": {onPostgres, (*world).harmLimited, 0},  // as above

	"schedules": {onJetStream, (*world).killScheduled, 0}, // kill -9 of workers that run a thousand schedules
	"deploy":    {onJetStream, (*world).deploy, 0},        // a release that knows schedules is rolled out, and back

	"edits":         {onJetStream, edited((*world).killServer), 0}, // schedules are changed all the time while the server is killed
	"embedded-disk": {onEmbedded, (*world).fillDisk, 0},            // the disk of the process that has all is filled and freed
	"half-open":     {onJetStream, (*world).sever, 0},              // connections lose all data without an error
	"restore":       {onJetStream, (*world).restoreBackups, 0},     // an older backup is restored below workers that live
	"pg-half-open":  {onPostgres, (*world).sever, 0},               // as above

	"embedded-edits": {onEmbedded, edited((*world).killEmbedded), 0}, // the same of the process that has all
	"cluster-edits":  {onJetStream, edited((*world).killLeader), 3},  // and of the stream's leader of three nodes
	"pg-edits":       {onPostgres, edited((*world).killPostgres), 0}, // as above

	"pg-schedules": {onPostgres, (*world).killScheduled, 0}, // as above
	"pg-deploy":    {onPostgres, (*world).deploy, 0},        // as above

	"pg-worker":    {onPostgres, (*world).killWorkers, 0},
	"pg-freeze":    {onPostgres, (*world).freeze, 0},
	"pg-server":    {onPostgres, (*world).killPostgres, 0},      // kill -9 of the server, or of one of its backends
	"pg-terminate": {onPostgres, (*world).terminateBackends, 0}, // pg_terminate_backend in the middle of a claim
	"pg-pool":      {onPostgres, (*world).exhaustPools, 0},      // pools of two connections with many users
	"pg-clock":     {onPostgres, (*world).moveClock, 0},         // the server's clock an hour from the workers', who are killed, too
	"pg-timeout":   {onPostgres, (*world).timeOut, 0},           // statement_timeout of some ms, now and then
	"pg-deadlock":  {onPostgres, (*world).provokeDeadlocks, 0},  // a transaction that locks jobs in the wrong order

	"pg-set-clock":    {onPostgres, (*world).turnPostgres, 0},   // the server's clock is set while it runs
	"pg-hold":         {onPostgres, (*world).hold, 0},           // as above
	"pg-lease":        {onPostgres, (*world).loseLease, 0},      // as above
	"pg-commit":       {onPostgres, (*world).failCommits, 0},    // a fifth of the commits fails
	"pg-serializable": {onPostgres, (*world).beSerializable, 0}, // transactions are serializable if they do not say otherwise
	"pg-proxy":        {onPostgres, (*world).disturb, 0},        // as above
	"pg-fleet":        {onPostgres, (*world).mixFleet, 0},       // as above
	"pg-tool":         {onPostgres, (*world).useTool, 0},        // as above, and one of them locks the table
}

// runFault runs a fault in a directory, and then what is left to its end.
func runFault(name, dir string, set settings) (r result, err error) {
	f := faults[name]
	err = attempt(func() {
		inWorld(dir, f.engine, cmp.Or(f.nodes, 1), func(w *world) {
			defer func() { r = w.r }()
			w.set, w.end = set, time.Now().Add(set.length)
			w.spec.Small, w.spec.Rate, w.spec.Near, w.spec.Far = true, set.rate, set.near, set.far
			w.r.TwiceLimit, w.r.CheckTwice, w.r.Brief = 0.02, !set.brief, set.brief
			if w.pg != nil {
				w.r.TwiceLimit = 0.005
			}
			stopGap := w.watchGap()
			err := attempt(func() { f.run(w) })
			if gap := stopGap(); name == "cluster" || strings.HasSuffix(name, "half-open") {
				w.r.Gap = gap
			}
			if set.brief {
				w.r.RejectedLimit = 0
			}
			if err == nil {
				err = attempt(w.stopClients)
			}
			if err == nil && !set.quick {
				err = attempt(w.drain)
			}
			w.killAll()
			w.r.account = audit(dir)
			must(err)
		})
	})
	return r, err
}

// killEmbedded kills a process some time after it has begun to work: at any moment of
// that, and not again and again before it has begun where that takes long.
func (w *world) killEmbedded() {
	w.until(1, func(int) {
		size := w.written()
		w.start("embedded", "embedded")
		w.awaitWork(size)
		pause(time.Second, 4*time.Second)
		w.kill("embedded")
	})
}

func (w *world) killWorkers() {
	w.startAll()
	w.until(1, func(n int) {
		pause(time.Second, 3*time.Second)
		name := "worker" + strconv.Itoa(n%2)
		w.kill(name)
		w.start(name, "worker")
	})
}

func (w *world) killServer() {
	w.startAll()
	w.until(1, func(int) {
		pause(2*time.Second, 4*time.Second)
		w.kill("server0")
		pause(0, time.Second)
		size := w.written()
		w.startServer(0)
		w.awaitWork(size)
	})
}

func (w *world) freeze() {
	w.r.CheckTwice = false // what was running when it was frozen runs elsewhere: that is the promise
	w.startAll()
	w.until(1, func(n int) {
		pause(time.Second, 2*time.Second)
		w.freezeFor("worker"+strconv.Itoa(n%2), lease+rand.N(2*lease))
	})
}

// fleets are the kinds of workers that come one after the other.
var fleets = [][]string{{kind}, {kind, "other"}, {"other", few}, {kind, "other", few}, {few, kind}}

// mixFleet has workers that run different kinds, and deploys them anew all the time, with
// other kinds: some end in peace, and some are killed. One kind nobody runs until the end.
func (w *world) mixFleet() {
	w.startServers()
	w.start("producer", "producer", func(s *spec) { s.Kinds = allKinds })
	w.until(4, func(n int) {
		name := "worker" + strconv.Itoa(n%3)
		switch {
		case w.procs[name] == nil:
		case n%2 == 0:
			w.stop(name)
		default:
			w.kill(name)
		}
		w.start(name, "worker", func(s *spec) { s.Kinds = fleets[n%len(fleets)] })
		pause(time.Second/2, min(3*time.Second, w.set.length/6))
	})
}

// loseLease makes slow workers lose their lease while jobs that they have claimed wait for
// a slot, and all else of them goes on. A quick worker takes over and fails the
// attempts, and the jobs are canceled: none of them may begin in the slow one any more.
func (w *world) loseLease() {
	w.r.CheckTwice = false // what runs in a slow worker begins elsewhere, too: that is the promise
	w.spec.Fail, w.spec.Cancel = 80, 100
	w.startAll(func(s *spec) { s.Slow, s.Running = 10*time.Second, 16 })
	w.start("worker2", "worker")
	w.until(1, func(int) {
		pause(lease/2, lease/2)
		for _, name := range []string{"worker0", "worker1"} {
			must(os.WriteFile(mutePath(w.dir, name), nil, 0o600))
		}
		pause(2*lease, lease)
		for _, name := range []string{"worker0", "worker1"} {
			must(os.Remove(mutePath(w.dir, name)))
			w.r.Provoked++
		}
	})
}

// useTool runs operators beside workers: they list, look up, cancel, move and redrive.
func (w *world) useTool() {
	w.spec.Fail, w.spec.Dead, w.spec.Moved = 10, 50, true
	w.startAll()
	w.start("tool", "tool")
	w.until(1, func(int) {
		w.r.Provoked++
		if w.pg == nil {
			time.Sleep(time.Second)
		} else {
			w.lockTable()
		}
	})
}

// harmLimited kills workers, freezes them for longer than their lease, and ends them in
// peace, while limits hold, and pauses come and go.
func (w *world) harmLimited() {
	w.r.CheckTwice, w.r.CheckLimits = false, true // what was running when it was killed runs again
	w.spec.Rate, w.spec.Slow, w.spec.Lanes, w.spec.Bouts = 80, 400*time.Millisecond, 5, true
	w.spec.Kinds = []string{capped, paced}
	if w.set.quick {
		w.spec.Rate, w.spec.Slow, w.spec.Kinds = 300, 40*time.Millisecond, []string{capped}
	}
	w.startServers()
	w.start("ruler", "ruler")
	w.awaitWork(0)
	size := w.written()
	w.startClients()
	w.start("worker2", "worker")
	w.awaitWork(size)
	w.until(3, func(n int) {
		pause(time.Second, 2*time.Second)
		name := "worker" + strconv.Itoa(rand.N(3))
		switch n % 3 {
		case 0:
			w.kill(name)
		case 1:
			w.freezeFor(name, lease+rand.N(lease))
			return
		default:
			w.stop(name)
		}
		w.start(name, "worker")
	})
}

// names returns the faults of engines, or of all.
func names(engines ...string) (some []string) {
	for name, f := range faults {
		if len(engines) == 0 || slices.Contains(engines, f.engine) {
			some = append(some, name)
		}
	}
	slices.Sort(some)
	return some
}
