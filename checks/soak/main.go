// Command soak runs timing wheels under every kind of load at the same time, for as long
// as it is told to.
//
//	cd checks && go run ./soak -for 10m
//
// Wheels of many shapes, with executors of all kinds, come and go by Stop and Shutdown.
// On each of them there are functions, jobs, keys, futures, contexts, timers with a channel
// and tickers. Their delays are random. They are canceled and reset at random, from outside
// and from inside tasks. Tasks sleep, panic and end their goroutine.
//
// Soak keeps its own accounts of every task, by means of the public API alone, and
// checks what the package promises: nothing runs early, nothing is lost, nothing happens
// twice, what was canceled does not run, and memory and goroutines do not grow. It
// prints what it found, and exits with status 1 if a promise was broken.
package main

import (
	"flag"
	"os"
	"time"
)

func main() {
	d := flag.Duration("for", 10*time.Minute, "how long to run")
	flag.Parse()
	s := newSoak(os.Stdout)
	s.run(*d)
	if !s.report() {
		os.Exit(1)
	}
}
