// Command soak puts timing wheels under everything at once, for as long as it is told
// to: functions, jobs of all kinds, keys, futures, contexts, timers with a channel and
// tickers, with random delays, cancelled and reset at random, from outside and from
// inside tasks that sleep, panic and end their goroutine, on wheels of many shapes with
// executors of all kinds, which come and go by Stop and Shutdown.
//
//	go run ./internal/soak -for 10m
//
// It keeps accounts of its own of every task, by the public API alone, and tells what
// does not hold of what the package promises: nothing is early, nothing is lost,
// nothing happens twice, what was cancelled does not run, and memory and goroutines
// stay what they are. Its exit status is 1 when it has found something.
package main

import (
	"flag"
	"os"
	"time"
)

func main() {
	d := flag.Duration("for", 10*time.Minute, "how long")
	flag.Parse()
	s := newSoak(os.Stdout)
	s.run(*d)
	if !s.report() {
		os.Exit(1)
	}
}
