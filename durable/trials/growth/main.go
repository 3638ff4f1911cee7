// Command growth simulates how a queue of several partitions keeps up: the table in
// durable/RESULTS.md. The simulation runs in virtual time, on a timing wheel whose clock
// stands still until it is moved.
//
//	go run ./growth
//
// A partition is one server that makes one commit at a time; jobs are spread over
// partitions at random. The flags take what was measured on other machines.
package main

import (
	"flag"
	"fmt"
	"slices"
	"time"
)

func main() {
	m := model{few: 12, batch: 10, most: 1000, ahead: 100 * time.Millisecond}
	flag.DurationVar(&m.sync, "sync", 150*time.Microsecond, "what a synced write takes")
	life := flag.Duration("cpu", 84*time.Microsecond, "processor time of a job's life")
	length := flag.Duration("for", 3*time.Second, "virtual time that is measured")
	bytes := flag.Int("bytes", 550, "on disk, of a job that waits")
	flag.Parse()
	m.write = *life / 3
	fmt.Println("| partitions | jobs a second | of each | late by p50 | p99 | max | writes in a commit | pending with 3 h of delay | on disk, 3 replicas |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, partitions := range []int{1, 10, 100} {
		for _, each := range []int{2000, 5000, 10000, 12000, 15000} {
			fmt.Println(row(m.simulate(partitions, partitions*each, *length), partitions, each, *bytes))
		}
	}
}

func row(r result, partitions, each, bytes int) string {
	slices.Sort(r.late)
	at := func(q float64) time.Duration {
		return r.late[min(int(q*float64(len(r.late))), len(r.late)-1)].Round(10 * time.Microsecond)
	}
	pending := float64(partitions*each) * 3 * 3600
	return fmt.Sprintf("| %d | %d | %d | %v | %v | %v | %.0f | %.1e | %.1f TB |", partitions, partitions*each, each,
		at(0.5), at(0.99), at(1), r.batch, pending, pending*float64(bytes)*3/1e12)
}
