package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
)

var (
	rounds = flag.Int("rounds", 1, "alternate the subjects so many times, in one process")
	limit  = flag.Duration("limit", time.Hour, "begin no further round after this `time`, beyond the third")
	sizes  = flag.String("pending", "", "`numbers` of pending timers, such as 100k,10M, instead of a benchmark's own")
)

// subject is one of the things that a benchmark compares. new makes one, and registers with
// b.Cleanup what ends it.
type subject[T any] struct {
	name string
	new  func(b *testing.B) T
}

// compare runs f on each subject, one after the other, as a sub-benchmark. With -rounds it
// does so again and again, so that whatever else the machine does meets all subjects alike.
// The published ratios are medians of the ratios within a round. The first subject is the
// one to which ratios are taken.
func compare[T any](b *testing.B, subjects []subject[T], f func(b *testing.B, t T)) {
	begin := time.Now()
	for round := 1; round <= *rounds && (round <= 3 || time.Since(begin) < *limit); round++ {
		for _, s := range subjects {
			name := "subject=" + s.name
			if *rounds > 1 {
				name += "/round=" + strconv.Itoa(round)
			}
			b.Run(name, func(b *testing.B) { f(b, s.new(b)) })
		}
	}
}

// child is the variable by which a process for a single benchmark finds the pattern of its name.
const child = "BENCHMARKS_CHILD"

// apart makes f run in a process of its own, each time that compare calls it: for benchmarks
// that leave something behind. Package time keeps the room of a million timers, and the
// runtime that of a million goroutines.
func apart[T any](subjects []subject[T], f func(b *testing.B, t T)) ([]subject[func() T], func(b *testing.B, start func() T)) {
	var later []subject[func() T]
	for _, s := range subjects {
		later = append(later, subject[func() T]{s.name, func(b *testing.B) func() T { return func() T { return s.new(b) } }})
	}
	return later, func(b *testing.B, start func() T) {
		if os.Getenv(child) != "" || testing.Short() {
			f(b, start())
			return
		}
		// A pattern for each element of the name, and only for this.
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(b.Name()), "/", "$/^") + "$"
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Env, cmd.Stderr = append(os.Environ(), child+"="+pattern), os.Stderr
		out, err := cmd.Output()
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "Benchmark") || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "    ") {
				fmt.Print(line)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
		b.SkipNow() // there is nothing to measure here
	}
}

// size returns full, or the size of a test run with -short, which shows only that a
// benchmark works.
func size[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

// eachSize runs f as a sub-benchmark for each number of pending timers.
func eachSize(b *testing.B, numbers []int, f func(b *testing.B, n int)) {
	if *sizes != "" {
		numbers = nil
		for s := range strings.SplitSeq(*sizes, ",") {
			n, err := parseCount(s)
			if err != nil {
				b.Fatalf("-pending: %v", err)
			}
			numbers = append(numbers, n)
		}
	}
	for _, n := range numbers {
		b.Run("pending="+count(n), func(b *testing.B) { f(b, size(n, min(n, 100))) })
	}
}

// loop measures op by wall time, processor time and allocations. A subject that makes
// garbage pays for it in the end. So if there is garbage, loop calls op until the collector
// has run once, for at most 20 times as long as b.Loop did.
func loop(b *testing.B, op func()) {
	b.ReportAllocs()
	measure.Settle()
	bytes, collections := measure.Garbage()
	before := measure.Now()
	for b.Loop() {
		op()
	}
	n := b.N
	if now, _ := measure.Garbage(); now-bytes > uint64(n) && !testing.Short() {
		lot := n/64 + 1
		for end := before.Time.Add(20 * b.Elapsed()); time.Now().Before(end); n += lot {
			if _, now := measure.Garbage(); now > collections {
				break
			}
			for range lot {
				op()
			}
		}
	}
	after := measure.Now()
	b.ReportMetric(float64(after.Time.Sub(before.Time))/float64(n), "ns/op")
	reportCPU(b, before, after, n, "op")
}

// parallel measures the function that op returns for each goroutine, on so many goroutines
// for each of GOMAXPROCS.
func parallel(b *testing.B, goroutines int, op func(g int) func()) {
	var started atomic.Int64
	b.SetParallelism(goroutines)
	measure.Settle()
	before := measure.Now()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		f := op(int(started.Add(1)) - 1)
		for pb.Next() {
			f()
		}
	})
	reportCPU(b, before, measure.Now(), b.N, "op")
}

// once is for a benchmark that measures one spell of its own, and reports what it finds.
func once(b *testing.B, spell func()) {
	for i := 0; b.Loop(); i++ {
		if i == 0 {
			spell()
		} else { // the spell was shorter than -benchtime
			time.Sleep(10 * time.Millisecond)
		}
	}
	b.ReportMetric(0, "ns/op") // which says nothing about a spell
}

// reportCPU reports the processor time of one of n things.
func reportCPU(b *testing.B, before, after measure.Usage, n int, thing string) {
	b.ReportMetric(float64(after.CPU-before.CPU)/float64(n), "cpu-ns/"+thing)
}

// reportLateness reports percentiles of how long after their deadlines timers ran, and the
// share that ran early.
func reportLateness(b *testing.B, late []time.Duration) {
	slices.Sort(late)
	for unit, p := range map[string]float64{"p50-ms": 50, "p99-ms": 99, "max-ms": 100} {
		b.ReportMetric(percentile(late, p).Seconds()*1000, unit)
	}
	early, _ := slices.BinarySearch(late, 0)
	b.ReportMetric(100*float64(early)/float64(len(late)), "early-%")
}

// percentile returns the smallest value that at least p per cent of the sorted values are
// not greater than.
func percentile(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(p * float64(len(sorted)) / 100))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// skipped are the reasons of skipped benchmarks, which go test does not show without -v.
var skipped []string

func skip(b *testing.B, why string) {
	b.Helper()
	skipped = append(skipped, b.Name()+": "+why)
	b.Skip(why)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if pattern := os.Getenv(child); pattern != "" {
		flag.Set("test.bench", pattern)
		flag.Set("test.run", "^$")
	}
	status := m.Run()
	for _, s := range skipped {
		fmt.Println("skipped", s)
	}
	os.Exit(status)
}

// tooSlow skips a benchmark whose load could not be generated in time. That says nothing
// about the subject.
func tooSlow(b *testing.B, what string) {
	b.Helper()
	skip(b, "the machine was too slow: "+what)
}

// patience is for how long nothing may happen before a timer counts as lost.
const patience = 20 * time.Second

// await waits until n timers have run. If none runs for a long time, the rest are lost:
// a failure of the wheel, and a reason to skip another library.
func await(b *testing.B, ran *atomic.Int64, n int) {
	b.Helper()
	last, since := ran.Load(), time.Now()
	for last < int64(n) {
		time.Sleep(5 * time.Millisecond)
		switch now := ran.Load(); {
		case now > last:
			last, since = now, time.Now()
		case time.Since(since) < patience:
		case strings.Contains(b.Name(), "subject=wheel"):
			b.Fatalf("%d of %d timers have not run", n-int(now), n)
		default:
			skip(b, fmt.Sprintf("%d of %d timers have not run", n-int(now), n))
		}
	}
}

func noop() {}

// random returns the same numbers for every subject and round.
func random(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 2026)) }

// farOff is a delay that does not come due: from a minute to a day.
func farOff(r *rand.Rand) time.Duration {
	return time.Minute + time.Duration(r.Int64N(int64(24*time.Hour-time.Minute)))
}

// fill starts n timers that do not come due, from all processors, so that they are spread
// over the heaps of package time and the shards of a wheel. There is room for some more.
func fill(t timers, n int) {
	t.keep(n + 1024)
	var all sync.WaitGroup
	procs := runtime.GOMAXPROCS(0)
	for p := range procs {
		all.Go(func() {
			r := random(p)
			for i := n * p / procs; i < n*(p+1)/procs; i++ {
				t.add(i, farOff(r), noop)
			}
		})
	}
	all.Wait()
}
