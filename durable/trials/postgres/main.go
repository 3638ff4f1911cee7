// Command postgres measures durable jobs on PostgreSQL beside River, and beside the poller
// that textbooks have, on one server and in one run. It prints tables in markdown.
//
//	go run ./postgres                        # all tables: some 7 minutes
//	go run ./postgres -only insert,late
//	go run ./postgres -only vacuum -for 10m  # the highest rate that holds, and the table under it
//
// It starts a server of its own, with every commit synced. Figures of one
// run belong together; those of another day, or of a busy machine, do not.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
)

// bench is one run.
type bench struct {
	server  *server
	systems []system
	size    size
}

// size is how long a run measures.
type size struct {
	rounds  int           // of insert and overdue; the medians are printed
	insert  time.Duration // of each measurement
	overdue int           // jobs
	late    time.Duration // for how long jobs are added
	rate    int           // of them, a second
	near    time.Duration // ahead of which half of them are due, up to three times as much
	far     time.Duration // and the others, up to 5/3 of it
	flow    time.Duration // of vacuum: ahead of which jobs are due, at most, after the first second
	step    time.Duration // of vacuum, at each rate tried
	hold    time.Duration // of vacuum, at the highest that holds
	pending int           // jobs that wait meanwhile
	first   int           // rate that vacuum tries, jobs a second
	most    int           // and the last
}

type section struct {
	name string
	run  func(context.Context) error
}

func main() {
	only := flag.String("only", "insert,overdue,late", "a list of insert, overdue, late, vacuum")
	s := size{rounds: 3, insert: 1500 * time.Millisecond, overdue: 100_000, rate: 1000, near: time.Second, far: 6 * time.Second, flow: 10 * time.Second, pending: 1_000_000, first: 2000, most: 50_000}
	flag.DurationVar(&s.late, "late", 30*time.Second, "how long jobs are added to see how late they are")
	flag.DurationVar(&s.step, "step", 30*time.Second, "how long vacuum holds each rate that it tries")
	flag.DurationVar(&s.hold, "for", 10*time.Minute, "how long vacuum holds the highest one")
	flag.IntVar(&s.first, "first", s.first, "the first rate that vacuum tries, jobs a second")
	flag.IntVar(&s.pending, "pending", s.pending, "how many jobs wait while vacuum measures")
	flag.Parse()
	if err := run(context.Background(), strings.Split(*only, ","), s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run starts a server and measures these sections.
func run(ctx context.Context, only []string, s size) (err error) {
	pg, err := pgserver.New("shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200")
	if err != nil {
		return err
	}
	defer func() {
		if e := pg.Stop(); err == nil {
			err = e
		}
	}()
	srv, err := newServer(ctx, pg)
	if err != nil {
		return err
	}
	defer srv.admin.Close()
	b := &bench{server: srv, systems: systems, size: s}
	if err := b.describe(ctx); err != nil {
		return err
	}
	for _, sec := range []section{{"insert", b.insert}, {"overdue", b.overdue}, {"late", b.late}, {"vacuum", b.vacuum}} {
		if !slices.Contains(only, sec.name) {
			continue
		}
		if err := sec.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", sec.name, err)
		}
	}
	fmt.Printf("\nLoad average at the end: %s\n", loadAverage())
	return nil
}

// describe prints what the figures were measured on and with.
func (b *bench) describe(ctx context.Context) error {
	fmt.Printf("%s; load average at the start: %s\n", time.Now().UTC().Format(time.RFC3339), loadAverage())
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size"} {
		var v string
		if err := b.server.admin.QueryRow(ctx, "select current_setting($1)", name).Scan(&v); err != nil {
			return err
		}
		fmt.Printf("%s %s; ", name, v)
	}
	fmt.Println()
	for _, s := range b.systems {
		fmt.Printf("- %s: %s\n", s.name, s.note)
	}
	return nil
}
