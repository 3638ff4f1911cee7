//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// benchmarks measure the JetStream engine.
func benchmarks() []scenario {
	embedded, nodes := on(onEmbedded), on(onCluster)
	callers := []way{{1, 1}, {64, 1}, {256, 1}, {2000, 1}}
	return []scenario{
		{"sync", syncCost},
		{"accept", func() { measure("accepted", inserts(*length/2, callers...), embedded) }},
		{"life", func() { measure("whole life", lives(1000, 5000, 10000), embedded) }},
		{"schedules", func() { measure("whole life", lives(200, 1000), on(onJetStream), serversOwn) }},
		{"pending", func() { measure(fmt.Sprint(*pending, " pending"), []step{besidePending}, embedded) }},
		{"overdue", func() {
			measure(fmt.Sprint(*backlog, " overdue at the start"), []step{workOff(20 * time.Minute)}, embedded)
		}},
		{"idle", func() { measure(fmt.Sprint("with nothing to do, for ", *length), []step{idle}, embedded) }},
		{"cascade", func() { measure("whole life", lives(1000), cascading) }},
		{"nodes", func() {
			measure("accepted, and whole life", slices.Concat(inserts(*length/2, callers[:3]...), lives(200, 1000)), nodes)
		}},
	}
}

// besides measure durable/postgres beside other queues, on one server.
func besides() []scenario {
	const atMost = 10 * time.Second
	beside := func(run func(...system)) func() {
		return func() {
			pg := get(pgserver.New("shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200"))
			defer pg.Stop()
			run(systemsOn(pg)...)
		}
	}
	table := func(title string, steps ...step) func() {
		return beside(func(all ...system) { measure(title, steps, all...) })
	}
	soonAndLater := life(*rate, 5*time.Millisecond, span{*length / 30, *length / 15}, span{*length / 5, *length * 2 / 15})
	return []scenario{
		{"insert", table("jobs stored", inserts(*length/20, way{1, 1}, way{32, 1}, way{1, 1000}, way{4, 1000})...)},
		{"late", table(fmt.Sprint("scheduled jobs for ", *length), soonAndLater)},
		{"overdue", table(fmt.Sprintf("%d overdue, or as many as are run in %v", *backlog, atMost), workOff(atMost))},
		{"idle", table(fmt.Sprint("with nothing to do, for ", *length), idle)},
		{"vacuum", beside(func(all ...system) { all[0].with(vacuum) })},
	}
}

// system is a kind of peer, and how it is set up.
type system struct {
	name, note string
	with       func(f func(*meter)) // calls f with one that has no jobs
}

// on returns the system of an engine on servers of its own.
func on(engine string) system {
	return system{engine, "", func(f func(*meter)) {
		s := newStore(engine)
		defer s.remove()
		f(&meter{peer: s.peer(), store: s})
	}}
}

// meter is what measures a peer.
type meter struct {
	peer
	store *store           // of those with servers of their own
	pg    *pgserver.Server // of the others
	pool  *pgxpool.Pool    // of that
	found func(row string, x float64)
}

// step measures something, and says what it has found.
type step func(m *meter)

// measure prints a table in markdown with the medians of what the steps find, and with the medians of its ratios
// to the first system. The systems take turns, so that the rest of the machine's work meets all of them, and each
// round begins with the next one, so that none always comes first.
func measure(title string, steps []step, systems ...system) {
	systems = slices.DeleteFunc(systems, func(s system) bool { return *only != "" && s.name != *only })
	if len(systems) == 0 {
		must(fmt.Errorf("there is no system %q here", *only))
	}
	fmt.Printf("load average at the start: %s\n\n", loadAverage())
	head := "| " + title
	for _, s := range systems {
		if head += " | " + s.name; s.note != "" {
			fmt.Printf("- %s: %s\n", s.name, s.note)
		}
	}
	fmt.Printf("\n%s |\n|%s\n", head, strings.Repeat(" --- |", 1+len(systems)))
	for _, step := range steps {
		var rows []string
		figures := map[string][][]float64{} // by row, and in each by system
		for round := range *rounds {
			for k := range systems {
				i := (round + k) % len(systems)
				systems[i].with(func(m *meter) {
					m.found = func(row string, x float64) {
						if figures[row] == nil {
							rows, figures[row] = append(rows, row), make([][]float64, len(systems))
						}
						figures[row][i] = append(figures[row][i], x)
					}
					step(m)
				})
			}
		}
		for _, row := range rows {
			fmt.Printf("| %s | %.1f", row, median(figures[row][0]))
			for _, all := range figures[row][1:] {
				ratios := slices.Clone(all)
				for i, x := range figures[row][0] {
					ratios[i] /= x
				}
				fmt.Printf(" | %.1f (%.2f)", median(all), median(ratios))
			}
			fmt.Println(" |")
		}
	}
}

// costs starts to count processor time. The function that it returns says what one of n jobs has taken, and what
// part of that was the server's, if it is another process.
func (m *meter) costs() (done func(row string, n int)) {
	server := func() time.Duration {
		if m.pg == nil {
			return 0
		}
		return m.pg.CPU()
	}
	before, own := server(), cpu()
	return func(row string, n int) {
		used := server() - before
		m.found(row+": us of processor time each", float64(each(used+cpu()-own, n))/1e3)
		if m.pg != nil {
			m.found(row+": the server's part", float64(each(used, n))/1e3)
		}
	}
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // of Linux
	return strings.Join(strings.Fields(string(text))[:min(3, len(text))], " ")
}

// syncCost prints what a synced write costs on this disk at this moment, which is what
// the other figures are to be read beside.
func syncCost() {
	f := get(os.CreateTemp("", "sync"))
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for range 300 {
		began := time.Now()
		get(f.Write(make([]byte, 4096)))
		must(f.Sync())
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	fmt.Printf("a synced write of 4 KiB: p50 %s, p99 %s\n", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)))
}

// way is how jobs are added: in calls of so many.
type way struct{ callers, perCall int }

// inserts measure how many jobs a second are stored, which are due within a day.
func inserts(length time.Duration, ways ...way) (all []step) {
	for _, way := range ways {
		all = append(all, func(m *meter) {
			var adding group
			added := make([]int, way.callers)
			done, began := m.costs(), time.Now()
			for i := range way.callers {
				adding.run(func() {
					for ; time.Since(began) < length; added[i] += way.perCall {
						m.add(jobsAhead(way.perCall, within(time.Hour, 24*time.Hour)))
					}
				})
			}
			adding.wait()
			n, took, row := 0, time.Since(began), fmt.Sprintf("%d callers, %d jobs a call", way.callers, way.perCall)
			for _, one := range added {
				n += one
			}
			m.found(row+": a second", float64(n)/took.Seconds())
			done(row, n)
		})
	}
	return all
}

// span is how far ahead jobs are due.
type span struct{ least, more time.Duration }

// lives measure whole lives at some rates: add, fetch, claim, run, done.
func lives(rates ...int) (all []step) {
	for _, rate := range rates {
		all = append(all, life(rate, time.Millisecond, span{time.Second, 2 * time.Second}))
	}
	return all
}

// life adds jobs at a rate, those of each interval in one call, and runs them. As many are due in each of some spans.
func life(rate int, interval time.Duration, spans ...span) step {
	return func(m *meter) {
		var f flow
		end := f.work(m)
		time.Sleep(min(3*time.Second, *length)) // they start
		done := m.costs()
		added := addAhead(m, rate, *length, interval, func() time.Duration {
			s := spans[rand.N(len(spans))]
			return s.least + rand.N(s.more)
		})
		f.await(added)
		row := fmt.Sprint(rate, " a second")
		done(row, added)
		end()
		for _, s := range spans {
			late := lateOf(slices.DeleteFunc(f.since(0), func(r ranJob) bool { return r.ahead < s.least || r.ahead > s.least+s.more }))
			for _, q := range []struct {
				name string
				q    float64
			}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
				m.found(fmt.Sprintf("%s, due %v to %v later: ms late by %s", row, s.least, s.least+s.more, q.name), float64(quantile(late, q.q))/1e6)
			}
		}
	}
}

// idle measures what a worker takes that has no job, after ten seconds in which it starts.
func idle(m *meter) {
	transactions := func() (n int64) {
		if m.pg != nil {
			must(m.pool.QueryRow(background, "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()").Scan(&n))
		}
		return n
	}
	var f flow
	end := f.work(m)
	time.Sleep(10 * time.Second)
	before, own, began := transactions(), cpu(), time.Now()
	time.Sleep(*length)
	used, seconds := cpu()-own, time.Since(began).Seconds()
	m.found("ms of processor time a second", float64(used.Microseconds())/1e3/seconds)
	if m.pg != nil {
		time.Sleep(2 * time.Second) // the server counts with a delay
		m.found("transactions a second", float64(transactions()-before)/time.Since(began).Seconds())
	}
	end()
}

// workOff measures how many overdue jobs a second a new worker runs. It stops when the last end is stored, or
// after atMost.
func workOff(atMost time.Duration) step {
	return func(m *meter) {
		fill(m, *backlog, within(-time.Second, 1))
		before, peak, pause := heap(), 0.0, time.Millisecond
		done, began := m.costs(), time.Now()
		var f flow
		end := f.work(m)
		for ; f.count() < *backlog && time.Since(began) < atMost; time.Sleep(pause) {
			if m.pg == nil { // it takes a while to measure
				peak, pause = max(peak, heap()), 200*time.Millisecond
			}
		}
		end()
		n := f.count()
		m.found("run and ended, a second", float64(n)/time.Since(began).Seconds())
		done("run and ended", n)
		if m.pg == nil {
			m.found("MB of heap more, at most", peak-before)
		}
	}
}

// besidePending measures what jobs take that wait, and how long it takes to open their store.
func besidePending(m *meter) {
	before, began := heap(), time.Now()
	fill(m, *pending, within(2*time.Hour, 22*time.Hour))
	m.found("added a second", float64(*pending)/time.Since(began).Seconds())
	m.found("MB of heap more", heap()-before)
	must(m.peer.(ours).q.Close())
	began = time.Now()
	m.peer = m.store.peer()
	m.found("ms to open their store", float64(time.Since(began))/1e6)
	lives(1000)[0](m)
}

// cascading has jobs of a far bucket that are moved to near ones while it is measured.
var cascading = system{"embedded, while others cascade", "", func(f func(*meter)) {
	const (
		near, lead = 5 * time.Second, 20 * time.Second
		filling    = 15_000 // jobs that can be added in a second
	)
	took := time.Duration(*pending/filling)*time.Second + 30*time.Second
	// Buckets begin at the multiples of their width since 1970. The second far bucket of
	// this width begins when the filling and a margin of half a lead are over.
	start := time.Now().Add(took + 2*lead).Truncate(near)
	s := newStore(onEmbedded, jetstream.WithBuckets(jetstream.Buckets{Near: near, Far: time.Duration(start.Unix()) * time.Second, Lead: lead, Settle: 10 * time.Second}))
	defer s.remove()
	m := &meter{peer: s.peer(), store: s}
	fill(m, *pending, within(time.Until(start)+10*time.Minute, time.Hour))
	fmt.Fprintf(os.Stderr, "heap %.0f MB; the cascade of %d begins in %v\n", heap(), *pending, time.Until(start.Add(-lead)).Round(time.Second))
	time.Sleep(time.Until(start.Add(-lead)))
	f(m)
}}

// serversOwn measures what the NATS server has of itself. There are no claims, attempts or leases, so it is less
// than a job's life.
var serversOwn = system{"JetStream's own schedules", "", func(f func(*meter)) {
	s := newStore(onJetStream)
	defer s.remove()
	nc := get(connectNATS(s.url))
	defer nc.Close()
	f(&meter{peer: newServerSchedules(nc), store: s})
}}
