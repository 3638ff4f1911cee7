//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
)

// extent is how much the scenarios of river measure.
type extent struct {
	rounds  int           // of insert and overdue; the medians are printed
	insert  time.Duration // of each measurement
	overdue int           // jobs
	late    time.Duration // for how long jobs are added, and each rate of vacuum is tried
	rate    int           // of late, jobs a second; vacuum begins with twice as many
	near    time.Duration // ahead of which half of them are due, up to three times as much
	far     time.Duration // and the others, up to 5/3 of it
	flow    time.Duration // of vacuum: ahead of which jobs are due, at most, after the first second
	hold    time.Duration // of vacuum, at the highest rate that holds
	pending int           // jobs that wait meanwhile
	most    int           // the last rate that vacuum tries
}

// whole is what is printed in durable/RESULTS.md.
func whole() extent {
	return extent{rounds: *rounds, insert: 1500 * time.Millisecond, overdue: *backlog, late: *length, rate: *rate,
		near: time.Second, far: 6 * time.Second, flow: 10 * time.Second, hold: 20 * *length, pending: *pending, most: 50_000}
}

// besides measures durable/postgres beside other queues, on one server.
func besides(size func() extent) (all []scenario) {
	for name, measure := range map[string]func(*contest){
		"insert": (*contest).insert, "overdue": (*contest).overdue, "late": (*contest).lateness, "vacuum": (*contest).vacuum,
	} {
		all = append(all, scenario{name, func() error {
			c := &contest{extent: size(), pg: get(pgserver.New("shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200"))}
			defer c.pg.Stop()
			c.admin = get(pgxpool.New(background, c.pg.DSN()))
			defer c.admin.Close()
			c.describe()
			measure(c)
			fmt.Printf("\nLoad average at the end: %s\n", loadAverage())
			return nil
		}})
	}
	slices.SortFunc(all, func(a, b scenario) int { return strings.Compare(a.name, b.name) })
	return all
}

// contest is a server, with a database for each peer.
type contest struct {
	extent
	pg    *pgserver.Server
	admin *pgxpool.Pool
	last  int // number of databases
}

// describe prints what the figures were measured on and with.
func (c *contest) describe() {
	fmt.Printf("%s; load average at the start: %s\n", time.Now().UTC().Format(time.RFC3339), loadAverage())
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size"} {
		var v string
		must(c.admin.QueryRow(background, "select current_setting($1)", name).Scan(&v))
		fmt.Printf("%s %s; ", name, v)
	}
	fmt.Println()
	for _, s := range systems {
		fmt.Printf("- %s: %s\n", s.name, s.note)
	}
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // of Linux
	return strings.Join(strings.Fields(string(text))[:min(3, len(text))], " ")
}

// open opens a peer on a new database, with forty connections.
func (c *contest) open(s system) (p peer, remove func()) {
	c.last++
	name := fmt.Sprint("bench", c.last)
	get(c.admin.Exec(background, "create database "+name))
	pool := get(pgxpool.New(background, strings.Replace(c.pg.DSN(), "/postgres?", "/"+name+"?", 1)+"&pool_max_conns=40"))
	p = s.open(pool)
	return p, func() {
		if o, ok := p.(ours); ok {
			_ = o.q.Close()
		}
		pool.Close()
		get(c.admin.Exec(background, "drop database "+name+" with (force)"))
	}
}

// used is the processor time that the server and this process have taken.
type used struct{ server, client time.Duration }

func (c *contest) used() used { return used{c.pg.CPU(), cpu()} }

func (c *contest) since(u used) used {
	now := c.used()
	return used{now.server - u.server, now.client - u.client}
}

// columns are the figures of one row, by system.
type columns map[string][]float64

func (c columns) add(s system, x float64) { c[s.name] = append(c[s.name], x) }

// printHead prints the head of a table in markdown, with a column for each system.
func printHead(title string, all []system) {
	fmt.Print("\n| ", title)
	for _, s := range all {
		fmt.Print(" | ", s.name)
	}
	fmt.Println(" |\n|" + strings.Repeat(" --- |", 1+len(all)))
}

// printRow prints the medians of a row.
func printRow(title, format string, all []system, c columns) {
	fmt.Print("| ", title)
	for _, s := range all {
		fmt.Printf(" | "+format, median(c[s.name]))
	}
	fmt.Println(" |")
}

// insert measures how many jobs a second are stored, each system by turns, so that the rest of the
// machine's work meets all of them.
func (c *contest) insert() {
	all := slices.DeleteFunc(slices.Clone(systems), func(s system) bool { return s.twin })
	peers := make([]peer, len(all))
	for i, s := range all {
		p, remove := c.open(s)
		defer remove()
		peers[i] = p
	}
	printHead("jobs stored a second", all)
	for _, way := range []struct {
		title          string
		callers, batch int
	}{{"1 caller, one job a call", 1, 1}, {"32 callers, one job a call", 32, 1}, {"1 caller, 1000 jobs a call", 1, 1000}, {"4 callers, 1000 jobs a call", 4, 1000}} {
		rates, costs := columns{}, columns{}
		for range c.rounds {
			for i, s := range all {
				before, began := c.used(), time.Now()
				n := float64(insertFor(peers[i], c.extent.insert, way.callers, way.batch))
				rates.add(s, n/time.Since(began).Seconds())
				u := c.since(before)
				costs.add(s, (u.server+u.client).Seconds()*1e6/max(n, 1))
			}
		}
		printRow(way.title, "%.0f", all, rates)
		printRow("- processor time each, server and client", "%.0f us", all, costs)
	}
}

// insertFor adds jobs that are due in an hour, from so many callers.
func insertFor(p peer, length time.Duration, callers, batch int) int {
	var all group
	added := make([]int, callers)
	end := time.Now().Add(length)
	for i := range callers {
		all.run(func() {
			for ; time.Now().Before(end); added[i] += batch {
				p.add(dueIn(time.Hour, batch))
			}
		})
	}
	all.wait()
	sum := 0
	for _, n := range added {
		sum += n
	}
	return sum
}

// overdue measures how fast jobs are worked off that are overdue when a worker starts, until the last
// of their ends is written down, but for no longer than ten seconds.
func (c *contest) overdue() {
	const atMost = 10 * time.Second
	rates, server, client := columns{}, columns{}, columns{}
	for range c.rounds {
		for _, s := range systems {
			p, remove := c.open(s)
			c.fill(p, c.extent.overdue, -time.Second)
			working, stop := context.WithTimeout(background, atMost)
			f := &flow{}
			before, began := c.used(), time.Now()
			p.work(working, func(j timedJob) {
				if f.note(j) == c.extent.overdue {
					stop()
				}
			})
			n, u := float64(f.count()), c.since(before)
			rates.add(s, n/time.Since(began).Seconds())
			server.add(s, u.server.Seconds()*1e6/max(n, 1))
			client.add(s, u.client.Seconds()*1e6/max(n, 1))
			stop()
			remove()
		}
	}
	printHead(fmt.Sprintf("%d overdue, or as many as are run in %v", c.extent.overdue, atMost), systems)
	printRow("run and ended, a second", "%.0f", systems, rates)
	printRow("- processor time of the server, each", "%.0f us", systems, server)
	printRow("- of the client, each", "%.0f us", systems, client)
}

func (c *contest) fill(p peer, n int, d time.Duration) {
	for ; n > 0; n -= 1000 {
		p.add(dueIn(d, min(n, 1000)))
	}
}

// lateness measures how late jobs are that are added at a rate. Half of them are due soon after, and
// half later than any system's scheduler takes to find them.
func (c *contest) lateness() {
	near, far, costs := "", "", ""
	for _, s := range systems {
		func() {
			p, remove := c.open(s)
			defer remove()
			f := &flow{}
			defer f.work(p)()
			before := c.used()
			added := addAhead(p, c.rate, c.late, func() time.Duration {
				if rand.N(2) == 0 {
					return c.far + rand.N(c.far*2/3)
				}
				return c.near + rand.N(2*c.near)
			})
			f.await(added)
			u, n := c.since(before), time.Duration(max(added, 1))
			isFar := func(r ranJob) bool { return r.ahead >= c.far }
			near += " | " + lateBy(slices.DeleteFunc(slices.Clone(f.runs), isFar))
			far += " | " + lateBy(slices.DeleteFunc(f.runs, func(r ranJob) bool { return !isFar(r) }))
			costs += fmt.Sprintf(" | %d + %d us", (u.server / n).Microseconds(), (u.client / n).Microseconds())
		}()
	}
	printHead(fmt.Sprintf("%d scheduled jobs a second for %v: late by p50, p99, max", c.rate, c.late), systems)
	fmt.Printf("| due %v to %v after they were added%s |\n| due %v to %v after%s |\n| processor time each, server + client%s |\n",
		c.near, 3*c.near, near, c.far, c.far*5/3, far, costs)
}

func lateBy(runs []ranJob) string {
	all := lateOf(runs)
	ms := func(q float64) float64 { return float64(quantile(all, q)) / 1e6 }
	return fmt.Sprintf("%.1f, %.1f, %.1f ms", ms(0.5), ms(0.99), ms(1))
}

// work runs the jobs of a peer until the function that it returns is called.
func (f *flow) work(p peer) (end func()) {
	ctx, stop := context.WithCancel(background)
	var all group
	all.run(func() { p.work(ctx, func(j timedJob) { f.note(j) }) })
	time.Sleep(time.Second) // it starts
	return func() { stop(); all.wait() }
}

// addAhead adds jobs at a rate, in calls of those of 5 ms. At most 64 calls are under way at once: a system
// that cannot keep up gets fewer.
func addAhead(p peer, rate int, length time.Duration, ahead func() time.Duration) (added int) {
	var all group
	calls := make(chan struct{}, 64)
	for began := time.Now(); time.Since(began) < length; time.Sleep(5 * time.Millisecond) {
		jobs := make([]timedJob, int(time.Since(began).Seconds()*float64(rate))-added)
		for i := range jobs {
			d := ahead()
			jobs[i] = timedJob{time.Now().Add(d), d}
		}
		if added += len(jobs); len(jobs) > 0 {
			calls <- struct{}{}
			all.run(func() { defer func() { <-calls }(); p.add(jobs) })
		}
	}
	all.wait()
	return added
}
