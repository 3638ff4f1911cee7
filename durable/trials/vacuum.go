//go:build unix

package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

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
func vacuum(m *meter) {
	const holds = 500 * time.Millisecond // is how late the 99th percentile may be
	fill(m, *pending, within(24*time.Hour, 1))
	get(m.pool.Exec(background, "vacuum analyze tickwheel.job"))
	before := readTableSize(m.pool)
	size := before.heap + before.indexes
	var f flow
	defer f.work(m)()
	added := 0
	p99 := func(rate int, d time.Duration) time.Duration {
		from := f.count()
		added += addAhead(m, rate, d, 5*time.Millisecond, within(time.Second, *length/3))
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
		s := readTableSize(m.pool)
		fmt.Printf(row, (2 * *length * time.Duration(i+1)).Minutes(), late, float64(s.heap)/1e6, float64(s.indexes)/1e6, float64(s.heap+s.indexes)/float64(size),
			s.dead, s.vacuums, 100*float64(s.hot-before.hot)/float64(max(s.updates-before.updates, 1)), loadAverage())
		before = s
	}
	f.await(added)
}
