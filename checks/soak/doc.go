// Package soak runs timing wheels under every kind of load at the same time: for a moment, or for
// as long as it is told to.
//
//	cd checks && go test -v -timeout 0 ./soak -for 10m
//
// Wheels of many shapes, with executors of all kinds, come and go by Stop and Shutdown. Each has
// functions, keys, jobs, futures, contexts, timers and tickers with random delays, which are
// canceled and reset at random, from outside and from inside functions. Functions sleep, panic and end
// their goroutine.
//
// The soak keeps its own accounts of every function, by means of the public API alone: nothing
// runs early, nothing is lost, nothing happens twice, a canceled function does not run, every wait
// ends, and memory and goroutines do not grow.
package soak
