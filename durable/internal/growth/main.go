// Command growth simulates, in virtual time, how a queue of several partitions keeps up: the
// table in durable/README.md.
//
//	go run ./internal/growth
//
// A partition is one server that makes one commit at a time. A commit takes a number of
// syncs and, for each write in it, processor time; while it is under way the next one
// collects. A job's life is three writes: it is added, claimed some time before it is due,
// and done. It begins when it is due and its claim is committed. Partitions have nothing in
// common, and jobs are spread over them at random.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// model has what was measured: internal/bench prints it.
type model struct {
	sync    time.Duration // a synced write
	write   time.Duration // processor time of a write
	few     int           // writes that are synced one by one
	batch   int           // syncs of a larger commit
	most    int           // writes in one commit
	ahead   time.Duration // of the claim
	pending int           // bytes on disk of a job that waits
}

func main() {
	m := model{few: 12, batch: 10, most: 1000, ahead: 100 * time.Millisecond, pending: 550}
	flag.DurationVar(&m.sync, "sync", 150*time.Microsecond, "what a synced write takes")
	life := flag.Duration("cpu", 84*time.Microsecond, "processor time of a job's life")
	length := flag.Duration("for", 5*time.Second, "virtual time within which jobs come due")
	flag.Parse()
	m.write = *life / 3
	fmt.Println("| partitions | jobs a second | of each | late by p50 | p99 | max | busy | pending with 3 h of delay | on disk, 3 replicas |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, partitions := range []int{1, 10, 100} {
		for _, each := range []int{2000, 5000, 10000, 12000, 15000} {
			fmt.Println(m.row(partitions, each, *length))
		}
	}
}

// row simulates all partitions.
func (m model) row(partitions, each int, length time.Duration) string {
	due := make([][]time.Duration, partitions)
	for range int(float64(partitions*each) * length.Seconds()) {
		p := rand.N(partitions)
		due[p] = append(due[p], time.Second+rand.N(length))
	}
	var late []time.Duration
	busy := time.Duration(0)
	for p := range due {
		l, b := m.simulate(due[p])
		late, busy = append(late, l...), busy+b
	}
	slices.Sort(late)
	at := func(q float64) time.Duration {
		return late[min(int(q*float64(len(late))), len(late)-1)].Round(10 * time.Microsecond)
	}
	pending := float64(partitions*each) * 3 * 3600
	return fmt.Sprintf("| %d | %d | %d | %v | %v | %v | %.0f %% | %.1e | %.1f TB |", partitions, partitions*each, each,
		at(0.5), at(0.99), at(1), 100*float64(busy)/float64(time.Duration(partitions)*(length+time.Second)), pending, pending*float64(m.pending)*3/1e12)
}

// request is a write that a partition is asked for; done is called with the end of its commit.
type request struct {
	at   time.Duration
	done func(end time.Duration)
}

// simulate returns how late each job of a partition begins, and how long it was busy.
func (m model) simulate(due []time.Duration) (late []time.Duration, busy time.Duration) {
	var asks queue
	for _, d := range due {
		added := d - 2*m.ahead - rand.N(time.Second-2*m.ahead)
		asks.put(request{at: added, done: func(time.Duration) {}})
		asks.put(request{at: d - m.ahead, done: func(end time.Duration) {
			begin := max(d, end)
			late = append(late, begin-d)
			asks.put(request{at: begin, done: func(time.Duration) {}})
		}})
	}
	now := time.Duration(0)
	for len(asks) > 0 {
		now = max(now, asks[0].at)
		var batch []request
		for len(asks) > 0 && asks[0].at <= now && len(batch) < m.most {
			batch = append(batch, asks.take())
		}
		syncs := m.batch
		if len(batch) <= m.few {
			syncs = len(batch)
		}
		took := time.Duration(syncs)*m.sync + time.Duration(len(batch))*m.write
		now += took
		busy += took
		for _, r := range batch {
			r.done(now)
		}
	}
	return late, busy
}
