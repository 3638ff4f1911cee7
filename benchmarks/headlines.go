package main

import (
	"slices"
	"strings"
)

// hasHeadline reports whether a row of the summary is of a benchmark.
func hasHeadline(name string) bool {
	return slices.ContainsFunc(headlines, func(h headline) bool {
		of, _, _ := strings.Cut(h.benchmark, "/")
		return name == "Benchmark"+of
	})
}

// headlines are the rows of the summary, and of the README.
var headlines = []headline{
	{"add a timer and cancel it, none pending", "AddCancel/pending=0", "wheel.Schedule", "cpu-ns/op", false},
	{"add a timer and cancel it, 1 M pending", "AddCancel/pending=1M", "wheel.Schedule", "cpu-ns/op", false},
	{"the same with AfterFunc, 1 M pending", "AddCancel/pending=1M", "wheel.AfterFunc", "cpu-ns/op", false},
	{"cancel one of 1 M at random and add another: CPU", "CancelRandom/pending=1M", "wheel.Schedule", "cpu-ns/op", true},
	{"the same with AfterFunc", "CancelRandom/pending=1M", "wheel.AfterFunc", "cpu-ns/op", false},
	{"the same with Keyed", "CancelRandom/pending=1M", "wheel.Keyed", "cpu-ns/op", false},
	{"the same with each Timeout held by pointer", "CancelRandom/pending=1M", "wheel.Schedule+Pointer", "cpu-ns/op", false},
	{"the same with 100 k", "CancelRandom/pending=100k", "wheel.Schedule", "cpu-ns/op", false},
	{"the same with 10 M", "CancelRandom/pending=10M", "wheel.Schedule", "cpu-ns/op", false},
	{"a single cancel among 1 M, p99", "CancelTail", "wheel.Schedule", "cancel-p99-ns", false},
	{"cancel at random and add, 1 M, 2 goroutines: wall time", "CancelParallel/goroutines=2", "wheel.Schedule", "ns/op", false},
	{"the same on 8 goroutines", "CancelParallel/goroutines=8", "wheel.Schedule", "ns/op", false},
	{"add and cancel, 8 goroutines on each processor", "Parallel/goroutines=8", "wheel.Schedule", "ns/op", false},
	{"Reset of 10 timers at random", "Reset/pending=10", "wheel.AfterFunc", "cpu-ns/op", false},
	{"Reset of 100 k timers at random", "Reset/pending=100k", "wheel.AfterFunc", "cpu-ns/op", false},
	{"Reset of 1 M timers at random", "Reset/pending=1M", "wheel.AfterFunc", "cpu-ns/op", false},
	{"the same, 100 k of another goroutine, 8 on each processor", "ResetParallel/goroutines=8", "wheel.AfterFunc", "ns/op", false},
	{"memory of each pending, 1 M, no handle kept", "Memory/pending=1M/hold=function", "wheel.Schedule", "B/timer", true},
	{"the same with a Timeout for each", "Memory/pending=1M/hold=handle", "wheel.Schedule", "B/timer", false},
	{"the same with a Timer for each", "Memory/pending=1M/hold=handle", "wheel.AfterFunc", "B/timer", false},
	{"one garbage collection, 1 M pending, no handle kept", "Memory/pending=1M/hold=function", "wheel.Schedule", "collection-ms", false},
	{"the same with a Timeout for each", "Memory/pending=1M/hold=handle", "wheel.Schedule", "collection-ms", false},
	{"the same with a Timer for each", "Memory/pending=1M/hold=handle", "wheel.AfterFunc", "collection-ms", false},
	{"24 k stopped closures of 4 KiB beside 122 k pending: kept", "Stopped", "wheel.Schedule", "kept-MB", true},
	{"1 M due within one second: CPU of each, adding included", "Fire/within=1s/task=empty", "wheel.Schedule", "cpu-ns/timer", true},
	{"1 M due at the same moment: the last one is late by", "Fire/within=0s/task=empty", "wheel.Schedule", "last-ms", false},
	{"10 k timers a second, ticks of 1 ms: lateness, p99", "Lateness/rate=10k/tick=1ms", "wheel.Schedule", "p99-ms", false},
	{"the same with WithPreciseWakeups and ticks of 100 us", "Lateness/rate=10k/tick=1ms", "wheel.Schedule+Precise", "p99-ms", false},
	{"lateness beside 16 goroutines that add and cancel, p99", "Crowd/goroutines=16", "wheel.AfterFunc", "p99-ms", false},
	{"an add while 4 M timers cascade, p99.9", "Cascade/shards=chosen", "wheel.Schedule", "add-p99.9-ns", false},
	{"lateness of a single timer then, p99", "Cascade/shards=chosen", "wheel.Schedule", "late-p99-ms", false},
	{"1000 timers a second, each alone: CPU of each", "Alone/rate=1k/tick=1ms", "wheel.Schedule", "cpu-ns/timer", true},
	{"50 timers a second, each alone: CPU of each", "Alone/rate=50/tick=1ms", "wheel.Schedule", "cpu-ns/timer", false},
	{"a timeout every 100 ms that is canceled at once: CPU of each", "Lone", "wheel.Schedule", "cpu-ns/timer", false},
	{"the same with a context", "LoneContext", "wheel.WithTimeout", "cpu-ns/timer", false},
	{"200 k due within one second, ticks of 1 us: CPU of each", "FineTick", "wheel.Schedule", "cpu-ns/timer", false},
	{"AfterFunc(0), and waiting for it", "AtOnce", "wheel.AfterFunc", "ns/op", false},
	{"a realistic mix, 50 k timers a second: CPU of each", "Mix/generator=runtime/tick=1ms", "wheel.Schedule", "cpu-ns/timer", false},
	{"the same mix, the generator sleeps in the system", "Mix/generator=thread/tick=1ms", "wheel.Schedule", "cpu-ns/timer", false},
	{"10 k connections, 200 k pushes a second: CPU of a push", "Sessions", "wheel.AfterFunc", "cpu-ns/push", false},
	{"a small server with timeouts and idle timers: CPU of a request", "Server", "wheel.AfterFunc", "cpu-ns/op", false},
	{"what a timeout adds to a request of 5 us: CPU", "Request", "wheel.Schedule", "cpu-ns/op", false},
	{"the deadline of a connection", "ConnDeadline", "wheel.Schedule", "cpu-ns/op", false},
	{"a context, below context.Background(): CPU", "Context/pending=0/parent=background/use=none", "wheel.WithTimeout", "cpu-ns/op", false},
	{"the same, 1 M timers pending", "Context/pending=1M/parent=background/use=none", "wheel.WithTimeout", "cpu-ns/op", false},
	{"and Done is called", "Context/pending=0/parent=background/use=done", "wheel.WithTimeout", "cpu-ns/op", false},
	{"a context below a request's own parent", "Context/pending=0/parent=own/use=none", "wheel.WithTimeout", "cpu-ns/op", false},
	{"and Done is called", "Context/pending=0/parent=own/use=done", "wheel.WithTimeout", "cpu-ns/op", false},
	{"the same, 1 M timers pending", "Context/pending=1M/parent=own/use=done", "wheel.WithTimeout", "cpu-ns/op", false},
	{"and another is derived from it", "Context/pending=0/parent=own/use=child", "wheel.WithTimeout", "cpu-ns/op", false},
	{"the same, 1 M timers pending", "Context/pending=1M/parent=own/use=child", "wheel.WithTimeout", "cpu-ns/op", false},
	{"the end of a parent of 100 k contexts: CPU of each", "ContextParent", "wheel.WithTimeout", "parent-ns/context", false},
	{"an HTTP server whose requests have a context: CPU of each", "ContextServer", "wheel.WithTimeout", "cpu-ns/op", false},
	{"NewTimer, select and Stop, 1 M pending", "Channel/pending=1M/use=select", "wheel.NewTimer", "cpu-ns/op", false},
	{"100 k tickers of a second: CPU of a tick", "Ticker", "wheel.NewTicker", "cpu-ns/run", false},
	{"300 k jobs of a second: CPU of a run", "Job", "wheel.ScheduleAtFixedRate", "cpu-ns/run", false},
	{"a key of 100 k, 32 goroutines on each processor", "Keyed/goroutines=32", "wheel.Keyed", "ns/op", false},
	{"three timers that end together", "Group", "wheel.Group", "cpu-ns/op", false},
	{"park and notify beside 1 M parked operations", "Purgatory/pending=1M/work=one", "purgatory", "cpu-ns/op", false},
	{"memory of each of 1 M parked", "Purgatory/work=each", "purgatory", "B/parked", false},
	{"200 k timers on eight workers: CPU of each", "Pool/within=1s", "wheel.Pool", "cpu-ns/timer", false},
}
