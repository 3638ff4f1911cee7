//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// fault is what happens until its end to the processes of an engine. It is a function, and says in r what it has done.
type fault struct {
	name   string
	engine string // "": JetStream, and PostgreSQL as "pg-NAME"
	run    func(w *world)
}

// Those that take the longest are first.
var faults = []fault{
	{"half-open", "", sever},                                   // connections lose all data without an error
	{"cluster-edits", onCluster, edited(killLeader)},           // schedules are changed all the time while the stream's leader of three nodes is killed
	{"embedded-disk", onEmbedded, fillDisk},                    // the disk of the process that has all is filled and freed
	{"limits", "", harmLimited},                                // workers die, freeze and end while limits hold, pauses come and go, and handlers ask for cooldowns
	{"lease", "", loseLease},                                   // it is lost between claim and begin
	{"cluster-freeze", onCluster, freezeServers(false)},        // one of three nodes is frozen that leads nothing
	{"cluster-freeze-leader", onCluster, freezeServers(true)},  // the one that leads the cluster
	{"cluster-cut-off", onCluster, cutOff},                     // the one that leads the stream is cut off from the others, but not from its clients
	{"cluster-clock", onCluster, turnLeaders},                  // three nodes whose clocks are a minute apart lead by turns
	{"embedded-clock", onEmbedded, turnClock},                  // the clock of the process that has all is set while it runs, forward and back, by seconds and hours
	{"clock", onJetStream, turnClock},                          // the same of the server
	{"pg-set-clock", onPostgres, turnClock},                    // and of PostgreSQL
	{"freeze", "", freeze},                                     // SIGSTOP of a worker for longer than its lease, then SIGCONT
	{"restore", onJetStream, restoreBackups},                   // an older backup is restored below workers that live
	{"edits", onJetStream, edited(killServer)},                 // schedules are changed all the time while the server is killed
	{"embedded-edits", onEmbedded, edited(killServer)},         // the same of the process that has all
	{"pg-edits", onPostgres, edited(killServer)},               // and of PostgreSQL
	{"deploy", "", deploy},                                     // a release that knows schedules is rolled out, and back
	{"fleet", "", mixFleet},                                    // workers of different kinds, that are killed and come back with others
	{"schedules", "", killScheduled},                           // kill -9 of workers that run a thousand schedules
	{"tool", "", useTool},                                      // operators list, cancel, move and redrive jobs; on PostgreSQL, one of them locks the table
	{"proxy", "", disturb},                                     // connections are cut, held up, and half open
	{"hold", "", hold},                                         // jobs wait in workers for hours
	{"pushed", "", pushKeyBack},                                // a key is pushed back all the time, and has a MaxWait
	{"embedded-pushed", onEmbedded, pushKeyBack},               // the same in one process
	{"cluster-pushed", onCluster, pushKeyBack},                 // and on three nodes
	{"older", "", killOlder},                                   // kill -9 of workers that run the older of two values of a key
	{"pg-held", onPostgres, holdKeys},                          // a transaction that stays open has added jobs under keys of attempts that fail
	{"power", onJetStream, cutPower(false, 0)},                 // a power cut of the server: its disk forgets all that was not synced
	{"embedded-power", onEmbedded, cutPower(false, 0)},         // of the process that has all
	{"cluster-power", onCluster, cutPower(false, 0)},           // of one of three nodes, beside another that is frozen
	{"cluster-power-all", onCluster, cutPower(true, 0)},        // of all three
	{"power-control", onJetStream, cutPower(false, rarely)},    // a server that does not sync every write has to lose some
	{"pg-power", onPostgres, cutPostgres()},                    // of PostgreSQL
	{"pg-power-control", onPostgres, cutPostgres("fsync=off")}, // without fsync it has to lose some
	{"pg-terminate", onPostgres, terminateBackends},            // pg_terminate_backend in the middle of a claim
	{"pg-pool", onPostgres, exhaustPools},                      // pools of two connections with many users
	{"pg-clock", onPostgres, moveClock},                        // the server's clock an hour from the workers', who are killed, too
	{"pg-timeout", onPostgres, timeOut},                        // statement_timeout of some ms, now and then
	{"pg-deadlock", onPostgres, provokeDeadlocks},              // a transaction that locks jobs in the wrong order
	{"pg-commit", onPostgres, failCommits},                     // a fifth of the commits fails
	{"pg-serializable", onPostgres, beSerializable},            // transactions are serializable if they do not say otherwise
	{"embedded", onEmbedded, killServer},                       // kill -9 of the process that has server, worker and producer
	{"server", onJetStream, killServer},                        // kill -9 of the server, beside workers and a producer that stay
	{"pg-server", onPostgres, killServer},                      // kill -9 of the server, or of one of its backends
	{"cluster", onCluster, killLeader},                         // kill -9 of the stream's leader of three nodes
	{"worker", "", killWorkers},                                // kill -9 of workers, beside a server that stays
}

// rarely is how often a NATS server syncs by default.
const rarely = 2 * time.Minute

// faultsOf returns the faults that are on PostgreSQL, or those that are not.
func faultsOf(postgres bool) (some []fault) {
	for _, f := range faults {
		switch {
		case f.engine == "" && postgres:
			f.name, f.engine = "pg-"+f.name, onPostgres
		case f.engine == "":
			f.engine = onJetStream
		}
		if postgres == (f.engine == onPostgres) {
			some = append(some, f)
		}
	}
	return some
}

// harm runs the fault in a directory, and then what is left to its end.
func (f fault) harm(dir string, set settings) (r result, err error) {
	err = attempt(func() {
		inWorld(dir, f.engine, func(w *world) {
			defer func() { r = w.r }()
			w.set, w.end = set, time.Now().Add(set.length)
			w.spec.Rate, w.spec.Near, w.spec.Far = set.rate, set.near, set.far
			w.r.twice, w.r.brief = 0.02, set.brief
			if w.pg != nil {
				w.r.twice = 0.005
			}
			err := attempt(func() {
				f.run(w)
				w.stopClients()
				w.drain()
			})
			w.killAll()
			died := w.r.Broken.Died
			w.r.account = audit(dir)
			w.r.Broken.Died = died
			must(err)
		})
	})
	return r, err
}

// killServer kills the server, or the process that has all: at any moment after it has begun to work. Of
// PostgreSQL it kills one backend now and then, on which the server ends all others and recovers.
func killServer(w *world) {
	w.spec.Retains, w.r.kept = true, true
	w.startAll()
	w.until(1, time.Second, 4*time.Second, func(n int) {
		switch {
		case w.pg != nil && n%3 == 2:
			w.r.Happened++
			w.sql(func(c *pgx.Conn) {
				if err := signalBackend(c, syscall.SIGKILL); !errors.Is(err, pgx.ErrNoRows) {
					must(err)
				}
			})
		case w.pg != nil:
			w.r.Happened++
			must(w.pg.Kill())
			pause(0, time.Second)
			must(w.pg.Start())
		case w.embedded:
			w.kill("embedded")
			w.startClients()
		default:
			w.kill("server0")
			pause(0, time.Second)
			w.startServer(0)
		}
		w.awaitGoingOn(func() {})
	})
}

func killWorkers(w *world) {
	w.startAll()
	w.until(1, time.Second, 3*time.Second, func(n int) {
		w.kill(worker(n % 2))
		w.start(worker(n%2), "worker")
	})
}

func freeze(w *world) {
	w.r.twice = -1 // what was running when it was frozen runs elsewhere: that is the promise
	w.startAll()
	w.until(1, time.Second, 2*time.Second, func(n int) { w.freezeFor(worker(n%2), lease+rand.N(2*lease)) })
}

// mixFleet has workers that run different kinds, and deploys them anew all the time, with
// other kinds: some end in peace, and some are killed. One kind nobody runs until the end.
func mixFleet(w *world) {
	fleets := [][]string{{kind}, {kind, "other"}, {"other", few}, {kind, "other", few}, {few, kind}}
	w.startServers()
	w.start("producer", "producer", func(s *spec) { s.Kinds = allKinds })
	w.until(4, time.Second/2, min(3*time.Second, w.set.length/6), func(n int) {
		name := worker(n % 3)
		switch {
		case w.procs[name] == nil:
		case n%2 == 0:
			w.stop(name)
		default:
			w.kill(name)
		}
		w.start(name, "worker", func(s *spec) { s.Kinds = fleets[n%len(fleets)] })
	})
}

// loseLease makes slow workers lose their lease while jobs that they have claimed wait for
// a slot, and all else of them goes on. A quick worker takes over and fails the
// attempts, and the jobs are canceled: none of them may begin in the slow one any more.
func loseLease(w *world) {
	w.r.twice = -1 // what runs in a slow worker begins elsewhere, too: that is the promise
	w.spec.Fail, w.spec.Cancel = 80, 100
	w.startAll(func(s *spec) { s.Slow, s.Running = 10*time.Second, 16 })
	w.start("worker2", "worker")
	w.until(1, lease/2, lease/2, func(int) {
		for i := range 2 {
			must(os.WriteFile(mutePath(w.dir, worker(i)), nil, 0o600))
		}
		pause(2*lease, lease)
		for i := range 2 {
			must(os.Remove(mutePath(w.dir, worker(i))))
			w.r.Happened++
		}
	})
}

// useTool runs operators beside workers: they list, look up, cancel, move and redrive.
func useTool(w *world) {
	w.spec.Fail, w.spec.Dead, w.spec.Moved = 10, 50, true
	w.startAll()
	w.start("tool", "tool")
	w.until(1, time.Second/2, time.Second, func(int) {
		w.r.Happened++
		if w.pg != nil {
			w.lockTable()
		}
	})
}

// harmLimited kills workers, freezes them for longer than their lease, and ends them in
// peace, while limits hold, pauses come and go, and handlers ask for cooldowns.
func harmLimited(w *world) {
	w.r.twice, w.r.limits = -1, true // what was running when it was killed runs again
	w.spec.Rate, w.spec.Slow, w.spec.Lanes, w.spec.Bouts = 120, 400*time.Millisecond, 5, true
	w.spec.Kinds = []string{capped, paced, cooled}
	w.startServers()
	w.awaitWork(func() { w.start("ruler", "ruler") })
	w.awaitWork(func() {
		w.startClients()
		w.start("worker2", "worker")
	})
	w.until(3, time.Second, 2*time.Second, func(n int) {
		name := worker(rand.N(3))
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

// stream is that of the only partition.
const stream = "TW_default_0"

// killLeader kills the node that leads the stream, and starts it again when the others have elected another. A
// while later it has caught up: two of three have to be there.
func killLeader(w *world) {
	w.r.twice = min(w.r.twice, 0.001)
	w.startAll()
	nc := get(connectNATS(w.url()))
	defer nc.Close()
	w.until(1, 5*time.Second, 0, func(int) {
		i := get(strconv.Atoi(strings.TrimPrefix(leaderOf(nc), "n")))
		w.kill("server" + strconv.Itoa(i))
		w.awaitGoingOn(func() {})
		w.startServer(i)
		if time.Now().Before(w.end) {
			time.Sleep(10 * time.Second)
		}
	})
}

// leaderOf returns the name of the node that leads the stream, once one does.
func leaderOf(nc *nats.Conn) string {
	js := get(nc.JetStream(nats.MaxWait(time.Second)))
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if info, err := js.StreamInfo(stream); err == nil && info.Cluster != nil && info.Cluster.Leader != "" {
			return info.Cluster.Leader
		}
	}
	must(errors.New("the stream has no leader"))
	return ""
}

// fillDisk fills the disk of the process that has all, at once or slowly, keeps it full for a
// while and frees it, again and again. A process that ends by itself is started again, as its
// supervisor would, when there is room.
func fillDisk(w *world) {
	w.r.twice = -1 // no attempt can end, and the process may be started again
	disk := filepath.Join(w.dir, "disk")
	must(os.Mkdir(disk, 0o700))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk).CombinedOutput(); err != nil {
		must(fmt.Errorf("%w: a file system cannot be mounted here: %w: %s", errors.ErrUnsupported, err, out))
	}
	w.atEnd = append(w.atEnd, func() { _ = exec.Command("umount", "-l", disk).Run() })
	w.spec.Store, w.spec.Ask = filepath.Join(disk, "store"), true
	w.startAll()
	w.until(2, time.Second, 4*time.Second, func(n int) {
		fillFile(filepath.Join(disk, "others"), n%2 == 1, time.Second+rand.N(2*lease))
		w.r.Happened++
		w.awaitGoingOn(func() { restart(w) })
	})
}

// fillFile fills the disk with a file, at once or within some seconds, and keeps it full for a while. Then
// it removes the file.
func fillFile(path string, slowly bool, full time.Duration) {
	defer os.Remove(path)
	f := get(os.Create(path))
	defer f.Close()
	piece := make([]byte, 256<<10)
	for end := (time.Time{}); end.IsZero() || time.Now().Before(end); {
		_, err := f.Write(piece)
		switch {
		case err == nil && slowly:
			time.Sleep(20 * time.Millisecond)
		case err == nil:
		case len(piece) > 512:
			piece = piece[:512]
		case end.IsZero():
			end = time.Now().Add(full)
		default:
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// restart starts the process that has all again if it has ended by itself, by saying that it cannot go on.
func restart(w *world) {
	if p := w.procs["embedded"]; p.hasEnded() {
		if code := p.cmd.ProcessState.ExitCode(); code != statusFailed {
			must(fmt.Errorf("it has ended with %d", code))
		}
		time.Sleep(time.Second)
		w.start("embedded", "embedded")
	}
}

// restoreBackups restores an older backup below workers that live, and that have learnt another
// limit since. No job is added between a backup and its restore, since none of these would be
// there any more. What ran meanwhile runs again: that is the promise.
func restoreBackups(w *world) {
	w.r.twice = -1
	w.startAll()
	w.until(1, 2*time.Second, 2*time.Second, func(n int) {
		w.stop("producer")
		must(patiently(func(ctx context.Context) error {
			return restoreBackup(ctx, w, filepath.Join(w.dir, fmt.Sprint("backup", n)))
		}))
		w.start("producer", "producer")
		w.r.Happened++
		w.awaitGoingOn(func() {})
	})
}

// restoreBackup makes a backup with one limit, and restores it once the workers have obeyed
// another for a while. Both let all jobs run that come.
func restoreBackup(ctx context.Context, w *world, dir string) error {
	nc := get(connectNATS(w.url()))
	defer nc.Close()
	q := get(durable.Open(ctx, get(jetstream.Connect(ctx, nc, jetstream.WithExistingOnly()))))
	defer q.Close()
	must(q.SetLimit(ctx, "before", durable.Limit{Kind: kind, Running: concurrency}))
	must(jetstream.Backup(ctx, nc, dir))
	must(q.SetLimit(ctx, "before", durable.Limit{Kind: kind, Running: 2 * concurrency}))
	pause(time.Second, time.Second)
	js := get(nc.JetStream())
	for { // a server that is busy for five seconds gives up
		_ = js.DeleteStream(stream)
		if err := jetstream.Restore(ctx, nc, dir); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}
