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

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
)

// besides measures durable/postgres beside other queues, on one server.
func besides() (all []scenario) {
	for _, m := range []struct {
		name    string
		measure func(*contest)
	}{{"insert", (*contest).insert}, {"late", (*contest).lateness}, {"overdue", (*contest).overdue}, {"vacuum", (*contest).vacuum}} {
		all = append(all, scenario{m.name, func() {
			c := &contest{pg: get(pgserver.New("shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200"))}
			defer c.pg.Stop()
			c.admin = get(pgxpool.New(background, c.pg.DSN()))
			defer c.admin.Close()
			fmt.Printf("load average at the start: %s\n", loadAverage())
			for _, s := range systems {
				fmt.Printf("- %s: %s\n", s.name, s.note)
			}
			m.measure(c)
			fmt.Printf("\nLoad average at the end: %s\n", loadAverage())
		}})
	}
	return all
}

// contest is a server, with a database for each peer.
type contest struct {
	pg    *pgserver.Server
	admin *pgxpool.Pool
	last  int // number of databases
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // of Linux
	return strings.Join(strings.Fields(string(text))[:min(3, len(text))], " ")
}

// with calls f with a peer on a new database, and forty connections.
func (c *contest) with(s system, f func(peer, *pgxpool.Pool)) {
	c.last++
	name := fmt.Sprint("bench", c.last)
	get(c.admin.Exec(background, "create database "+name))
	defer func() { get(c.admin.Exec(background, "drop database "+name+" with (force)")) }()
	pool := get(pgxpool.New(background, strings.Replace(c.pg.DSN(), "/postgres?", "/"+name+"?", 1)+"&pool_max_conns=40"))
	defer pool.Close()
	p := s.open(pool)
	if o, ok := p.(ours); ok {
		defer o.q.Close()
	}
	f(p, pool)
}

// cpu returns the processor time of the server and of this process.
func (c *contest) cpu() time.Duration { return c.pg.CPU() + cpu() }

// table is figures by their row, and in each by system, in the order of both.
type table struct {
	rows    []string
	figures map[string][][]float64
}

func (t *table) add(row string, system int, x float64) {
	if t.figures[row] == nil {
		t.rows = append(t.rows, row)
		t.figures[row] = make([][]float64, len(systems))
	}
	t.figures[row][system] = append(t.figures[row][system], x)
}

// print prints the medians in markdown.
func (t *table) print(title string) {
	fmt.Print("\n| ", title)
	for _, s := range systems {
		fmt.Print(" | ", s.name)
	}
	fmt.Println(" |\n|" + strings.Repeat(" --- |", 1+len(systems)))
	for _, row := range t.rows {
		fmt.Print("| ", row)
		for _, all := range t.figures[row] {
			fmt.Printf(" | %.1f", median(all))
		}
		fmt.Println(" |")
	}
}

// insert measures how many jobs a second are stored, each system by turns, so that the rest of the
// machine's work meets all of them.
func (c *contest) insert() {
	t := table{figures: map[string][][]float64{}}
	for _, way := range []struct {
		title          string
		callers, batch int
	}{{"1 caller, one job a call", 1, 1}, {"32 callers, one job a call", 32, 1}, {"1 caller, 1000 jobs a call", 1, 1000}, {"4 callers, 1000 jobs a call", 4, 1000}} {
		for range *rounds {
			for i, s := range systems {
				c.with(s, func(p peer, _ *pgxpool.Pool) {
					rate, cost := addFor(p, *length/20, way.callers, way.batch, c.cpu)
					t.add(way.title, i, rate)
					t.add(way.title+": us of processor time each, server and client", i, float64(cost)/1e3)
				})
			}
		}
	}
	t.print("jobs stored a second")
}

// overdue measures how fast jobs are worked off that are overdue when a worker starts, until the last
// of their ends is written down, but for no longer than ten seconds.
func (c *contest) overdue() {
	const atMost = 10 * time.Second
	t := table{figures: map[string][][]float64{}}
	for range *rounds {
		for i, s := range systems {
			c.with(s, func(p peer, _ *pgxpool.Pool) {
				fill(p, *backlog, within(-time.Second, 1))
				var f flow
				server, client, began := c.pg.CPU(), cpu(), time.Now()
				end := f.work(p)
				for f.count() < *backlog && time.Since(began) < atMost {
					time.Sleep(time.Millisecond)
				}
				end()
				n := f.count()
				t.add("run and ended, a second", i, float64(n)/time.Since(began).Seconds())
				t.add("- us of processor time of the server, each", i, float64(each(c.pg.CPU()-server, n))/1e3)
				t.add("- of the client, each", i, float64(each(cpu()-client, n))/1e3)
			})
		}
	}
	t.print(fmt.Sprintf("%d overdue, or as many as are run in %v", *backlog, atMost))
}

// lateness measures how late jobs are that are added at a rate. Half of them are due soon after, and
// half later than any system's scheduler takes to find them.
func (c *contest) lateness() {
	near, far := *length/30, *length/5
	fmt.Printf("\n%d scheduled jobs a second for %v, due %v to %v after they were added, and %v to %v\n", *rate, *length, near, 3*near, far, far*5/3)
	fmt.Print("\n| | near | far | processor time each, server + client |\n| --- | --- | --- | --- |\n")
	for _, s := range systems {
		c.with(s, func(p peer, _ *pgxpool.Pool) {
			var f flow
			end := f.work(p)
			time.Sleep(time.Second) // it starts
			server, client := c.pg.CPU(), cpu()
			added := addAhead(p, *rate, *length, 5*time.Millisecond, func() time.Duration {
				if rand.N(2) == 0 {
					return far + rand.N(far*2/3)
				}
				return near + rand.N(2*near)
			})
			f.await(added)
			server, client = each(c.pg.CPU()-server, added), each(cpu()-client, added)
			end()
			isFar := func(r ranJob) bool { return r.ahead >= far }
			soon := slices.DeleteFunc(f.since(0), isFar)
			later := slices.DeleteFunc(f.since(0), func(r ranJob) bool { return !isFar(r) })
			fmt.Printf("| %s | %s | %s | %v + %v |\n", s.name, latest(soon), latest(later), server, client)
		})
	}
}

// tableSize is what the server says about the table of jobs.
type tableSize struct{ heap, indexes, dead, vacuums, updates, hot int64 }

func readTableSize(pool *pgxpool.Pool) (s tableSize) {
	must(pool.QueryRow(background, `
		select pg_table_size(relid), pg_indexes_size(relid), n_dead_tup, autovacuum_count, n_tup_upd, n_tup_hot_upd
		from pg_stat_user_tables where relname = 'job'`).Scan(&s.heap, &s.indexes, &s.dead, &s.vacuums, &s.updates, &s.hot))
	return s
}

// vacuum finds the highest rate that holds beside jobs that are pending, each half as much again as
// the one before, holds it, and prints what becomes of the table.
func (c *contest) vacuum() {
	const holds = 500 * time.Millisecond // is how late the 99th percentile may be
	c.with(systems[0], func(p peer, pool *pgxpool.Pool) {
		fill(p, *pending, within(24*time.Hour, 1))
		get(pool.Exec(background, "vacuum analyze tickwheel.job"))
		before := readTableSize(pool)
		size := before.heap + before.indexes
		var f flow
		defer f.work(p)()
		added := 0
		p99 := func(rate int, d time.Duration) time.Duration {
			from := f.count()
			added += addAhead(p, rate, d, 5*time.Millisecond, within(time.Second, *length/3))
			if late := lateOf(f.since(from)); len(late) > 0 {
				return quantile(late, 0.99).Round(100 * time.Microsecond)
			}
			return time.Hour // nothing has run
		}
		highest := 0
		for next := 2 * *rate; highest < next; next += next / 2 {
			p99(next, *length/2)
			late := p99(next, *length/2)
			fmt.Printf("%d jobs a second for %v: p99 %v late, load average %s\n", next, *length, late, loadAverage())
			if late > holds && highest > 0 {
				break
			}
			if highest = next; late > holds || next >= 50**rate {
				break
			}
		}
		f.await(added)
		fmt.Printf("\n%d pending. %d jobs a second for %v:\n\n", *pending, highest, 20**length)
		fmt.Println("| minute | late by p99 | table | indexes | of the size before | dead tuples | autovacuums | updates that are HOT | load |")
		fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
		row := "| %.1f | %v | %.0f MB | %.0f MB | %.2f | %d | %d | %.1f %% | %s |\n"
		fmt.Printf(row, 0., time.Duration(0), float64(before.heap)/1e6, float64(before.indexes)/1e6, 1., before.dead, before.vacuums, 100., loadAverage())
		for i := range 10 {
			late := p99(highest, 2**length)
			s := readTableSize(pool)
			fmt.Printf(row, (2 * *length * time.Duration(i+1)).Minutes(), late, float64(s.heap)/1e6, float64(s.indexes)/1e6, float64(s.heap+s.indexes)/float64(size),
				s.dead, s.vacuums, 100*float64(s.hot-before.hot)/float64(max(s.updates-before.updates, 1)), loadAverage())
			before = s
		}
		f.await(added)
	})
}
