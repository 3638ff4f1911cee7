package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// holds is how late the 99th percentile may be at a rate that is said to hold.
const holds = 500 * time.Millisecond

// tableSize is what the server says about the table of jobs.
type tableSize struct {
	heap, indexes, dead, vacuums, updates, hot int64
}

func (s tableSize) total() int64 { return s.heap + s.indexes }

func readTableSize(ctx context.Context, pool *pgxpool.Pool) (s tableSize, err error) {
	err = pool.QueryRow(ctx, `
		select pg_table_size(relid), pg_indexes_size(relid), n_dead_tup, autovacuum_count, n_tup_upd, n_tup_hot_upd
		from pg_stat_user_tables where relname = 'job'`).Scan(&s.heap, &s.indexes, &s.dead, &s.vacuums, &s.updates, &s.hot)
	return s, err
}

// flow is a queue that runs jobs, and how late those of the last while were.
type flow struct {
	*tickwheel
	span time.Duration
	rate int // to be held

	mu   sync.Mutex
	late []time.Duration
	ran  int

	added int
}

func (f *flow) note(j job) {
	late := time.Since(j.due)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late, f.ran = append(f.late, late), f.ran+1
}

// take returns the 99th percentile since the last call.
func (f *flow) take() time.Duration {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	if len(late) == 0 {
		return time.Hour // nothing has run
	}
	slices.Sort(late)
	return late[len(late)*99/100]
}

// vacuum finds the highest rate that holds beside jobs that are pending, holds it, and
// prints what becomes of the table.
func (b *bench) vacuum(ctx context.Context) error {
	q, closeAll, err := b.open(ctx, systems[0])
	if err != nil {
		return err
	}
	defer closeAll()
	f := &flow{tickwheel: q.(*tickwheel), span: b.size.flow}
	for left := b.size.pending; left > 0; left -= 1000 {
		if err := q.add(ctx, dueIn(24*time.Hour, min(left, 1000))); err != nil {
			return err
		}
	}
	if _, err := f.pool.Exec(ctx, "vacuum analyze tickwheel.job"); err != nil {
		return err
	}
	pending, err := readTableSize(ctx, f.pool)
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var workErr error
	wg.Go(func() { workErr = f.work(working, f.note) })
	err = f.findRate(ctx, b.size)
	if err == nil {
		err = b.holdRate(ctx, f, pending)
	}
	stop()
	wg.Wait()
	return errors.Join(err, workErr)
}

// run adds jobs at a rate, which are due a second later, or up to span more.
func (f *flow) run(ctx context.Context, rate int, length time.Duration) error {
	n, err := addAt(ctx, f, rate, length, func() job {
		ahead := time.Second + rand.N(f.span)
		return job{time.Now().Add(ahead), ahead}
	})
	f.added += n
	return err
}

// await waits until all that were added have run.
func (f *flow) await() error {
	for end := time.Now().Add(3 * time.Minute); f.count() < f.added; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("of %d jobs %d have run", f.added, f.count())
		}
	}
	return nil
}

// findRate tries rates, each half as much again as the one before, until one does not
// hold.
func (f *flow) findRate(ctx context.Context, s size) error {
	for rate := s.first; ; rate += rate / 2 {
		if err := f.run(ctx, rate, s.step/2); err != nil {
			return err
		}
		f.take() // what was before is not looked at
		if err := f.run(ctx, rate, s.step/2); err != nil {
			return err
		}
		p99 := f.take()
		fmt.Printf("%d jobs a second for %v: p99 %v late, load average %s\n", rate, s.step, p99.Round(100*time.Microsecond), loadAverage())
		if p99 > holds || rate >= s.most {
			if f.rate == 0 {
				f.rate = rate
			}
			return f.await()
		}
		f.rate = rate
	}
}

// holdRate prints a row each tenth of the time.
func (b *bench) holdRate(ctx context.Context, f *flow, pending tableSize) error {
	fmt.Printf("\nBefore: %d pending take %.0f MB, indexes %.0f MB.\n", b.size.pending, mb(pending.heap), mb(pending.indexes))
	fmt.Printf("%d jobs a second, due 1s to %v later, for %v:\n\n", f.rate, time.Second+f.span, b.size.hold)
	fmt.Println("| minute | late by p99 | table | indexes | of the size before | dead tuples | autovacuums | updates that are HOT | load |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	f.take()
	before, began := pending, f.count()
	for i := range 10 {
		if err := f.run(ctx, f.rate, b.size.hold/10); err != nil {
			return err
		}
		s, err := readTableSize(ctx, f.pool)
		if err != nil {
			return err
		}
		fmt.Printf("| %.1f | %v | %.0f MB | %.0f MB | %.2f | %d | %d | %.1f %% | %s |\n",
			(b.size.hold * time.Duration(i+1) / 10).Minutes(), f.take().Round(100*time.Microsecond), mb(s.heap), mb(s.indexes),
			float64(s.total())/float64(pending.total()), s.dead, s.vacuums,
			100*float64(s.hot-before.hot)/float64(max(s.updates-before.updates, 1)), loadAverage())
		before = s
	}
	if err := f.await(); err != nil {
		return err
	}
	fmt.Printf("\n%d jobs have run.\n", f.count()-began)
	return nil
}

func (f *flow) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ran
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }
