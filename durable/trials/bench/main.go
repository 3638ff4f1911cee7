//go:build unix

// Command bench measures durable jobs on the embedded engine and on a cluster of three
// nodes, with every write synced, and prints the rows of the table in durable/RESULTS.md.
//
//	go run ./bench                     # everything but ten million: some minutes
//	go run ./bench -only life,accept
//	go run ./bench -only pending -n 10000000
//
// Figures of one run belong together; those of another day, or of a busy machine, do not.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

type section struct {
	name string
	run  func() error
}

var (
	n      = flag.Int("n", 1_000_000, "jobs that are pending")
	rate   = flag.Int("fill", 15000, "how many of them can be added in a second, for the cascade to begin when all are")
	length = flag.Duration("for", 10*time.Second, "how long each rate is held")
)

func main() {
	only := flag.String("only", "", "a list of sync, accept, life, schedules, pending, overdue, cascade, nodes")
	profile := flag.String("cpuprofile", "", "a file for a CPU profile")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	for _, s := range []section{
		{"sync", syncCost},
		{"accept", accept}, {"life", lives}, {"schedules", schedules}, {"pending", pending}, {"overdue", overdue}, {"cascade", cascade}, {"nodes", nodes},
	} {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), s.name) {
			continue
		}
		if err := s.run(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, err)
			os.Exit(1)
		}
	}
}

// open returns a Queue on a new directory, and what removes it.
func open(opts ...jetstream.Option) (*durable.Queue, string, func(), error) {
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "bench")
	if err != nil {
		return nil, "", nil, err
	}
	q, err := reopen(dir, opts...)
	return q, dir, func() { q.Close(); os.RemoveAll(dir) }, err
}

func reopen(dir string, opts ...jetstream.Option) (*durable.Queue, error) {
	ctx := context.Background()
	e, err := embedded.Open(ctx, dir, embedded.MaxStore(64<<30), embedded.With(opts...))
	if err != nil {
		return nil, err
	}
	return durable.Open(ctx, e, durable.WithConcurrency(1000))
}

// cpu returns the processor time that the process has taken.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap returns what is live, in MB.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
