//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// holds is how late the 99th percentile may be at a rate that is said to hold.
const holds = 500 * time.Millisecond

// tableSize is what the server says about the table of jobs.
type tableSize struct {
	heap, indexes, dead, vacuums, updates, hot int64
}

func readTableSize(pool *pgxpool.Pool) (s tableSize) {
	must(pool.QueryRow(background, `
		select pg_table_size(relid), pg_indexes_size(relid), n_dead_tup, autovacuum_count, n_tup_upd, n_tup_hot_upd
		from pg_stat_user_tables where relname = 'job'`).Scan(&s.heap, &s.indexes, &s.dead, &s.vacuums, &s.updates, &s.hot))
	return s
}

// vacuum finds the highest rate that holds beside jobs that are pending, each half as much again as
// the one before, holds it, and prints what becomes of the table.
func (c *contest) vacuum() {
	var pool *pgxpool.Pool
	p, remove := c.open(system{open: func(its *pgxpool.Pool) peer { pool = its; return openOurs(its) }})
	defer remove()
	c.fill(p, c.pending, 24*time.Hour)
	get(pool.Exec(background, "vacuum analyze tickwheel.job"))
	pending := readTableSize(pool)
	f := &flow{}
	defer f.work(p)()
	added := 0
	ahead := func() time.Duration { return time.Second + rand.N(c.flow) }
	// p99 holds a rate, and returns the 99th percentile of how late jobs were.
	p99 := func(rate int, length time.Duration) time.Duration {
		from := f.count()
		added += addAhead(p, rate, length, ahead)
		f.mu.Lock()
		late := lateOf(f.runs[from:])
		f.mu.Unlock()
		if len(late) == 0 {
			return time.Hour // nothing has run
		}
		return quantile(late, 0.99)
	}
	highest := 0
	for rate := 2 * c.rate; ; rate += rate / 2 {
		p99(rate, c.late/2)
		late := p99(rate, c.late/2)
		fmt.Printf("%d jobs a second for %v: p99 %v late, load average %s\n", rate, c.late, late.Round(100*time.Microsecond), loadAverage())
		if late <= holds || highest == 0 {
			highest = rate
		}
		if late > holds || rate >= c.most {
			break
		}
	}
	f.await(added)
	fmt.Printf("\nBefore: %d pending take %.0f MB, indexes %.0f MB.\n", c.pending, mb(pending.heap), mb(pending.indexes))
	fmt.Printf("%d jobs a second, due 1s to %v later, for %v:\n\n", highest, time.Second+c.flow, c.hold)
	fmt.Println("| minute | late by p99 | table | indexes | of the size before | dead tuples | autovacuums | updates that are HOT | load |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	before, began := pending, f.count()
	for i := range 10 {
		late := p99(highest, c.hold/10)
		s := readTableSize(pool)
		fmt.Printf("| %.1f | %v | %.0f MB | %.0f MB | %.2f | %d | %d | %.1f %% | %s |\n",
			(c.hold * time.Duration(i+1) / 10).Minutes(), late.Round(100*time.Microsecond), mb(s.heap), mb(s.indexes),
			float64(s.heap+s.indexes)/float64(pending.heap+pending.indexes), s.dead, s.vacuums,
			100*float64(s.hot-before.hot)/float64(max(s.updates-before.updates, 1)), loadAverage())
		before = s
	}
	f.await(added)
	fmt.Printf("\n%d jobs have run.\n", f.count()-began)
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }
