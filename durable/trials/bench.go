//go:build unix

package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	tickwheel "github.com/tickwheel/tickwheel/durable/jetstream"
)

// benchmarks measure the JetStream engine.
func benchmarks() []scenario {
	return []scenario{
		{"sync", syncCost},
		{"accept", func() { accept(onEmbedded, "accepted a second", 1, 64, 256, 2000) }},
		{"life", func() { life(onEmbedded, "whole life", 1000, 5000, 10000) }},
		{"schedules", ownSchedules},
		{"pending", besidePending},
		{"overdue", overdue},
		{"cascade", cascade},
		{"nodes", func() {
			accept(onCluster, "three nodes, accepted a second", 1, 64, 256)
			life(onCluster, "three nodes, whole life", 200, 1000)
		}},
	}
}

// syncCost prints what a synced write costs on this disk at this moment, which is what
// the other figures are to be read beside.
func syncCost() {
	f := get(os.CreateTemp("", "sync"))
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for range 300 {
		began := time.Now()
		get(f.Write(make([]byte, 4096)))
		must(f.Sync())
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	fmt.Printf("a synced write of 4 KiB: p50 %s, p99 %s\n", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)))
}

// accept measures how many jobs a second are accepted, each by a call of its own.
func accept(engine, title string, callers ...int) {
	for _, n := range callers {
		s := newStore(engine)
		rate, cost := addFor(s.peer(), *length/2, n, 1, cpu)
		fmt.Printf("%s, %4d callers: %.0f, %v of CPU each\n", title, n, rate, cost)
		s.remove()
	}
}

// life measures whole lives at several rates: add, fetch, claim, run, done.
func life(engine, title string, rates ...int) {
	for _, rate := range rates {
		s := newStore(engine)
		lifeOf(s.peer(), rate, title)
		s.remove()
	}
}

// lifeOf adds jobs that are due 1 to 3 s later at a rate, and runs them.
func lifeOf(p peer, rate int, title string) {
	var f flow
	end := f.work(p)
	time.Sleep(time.Second) // it starts
	before := cpu()
	added := addAhead(p, rate, *length, time.Millisecond, within(time.Second, 2*time.Second))
	f.await(added)
	used := cpu() - before
	end()
	fmt.Printf("%s at %5d/s: %d added, %d ran; %s; %v of CPU each\n", title, rate, added, f.count(), latest(f.runs), each(used, added))
}

// besidePending measures what jobs take that wait, and how long it takes to open their store.
func besidePending() {
	s := newStore(onEmbedded)
	defer s.remove()
	p := s.peer()
	before, began := heap(), time.Now()
	fill(p, *pending, within(2*time.Hour, 22*time.Hour))
	took := time.Since(began)
	fmt.Printf("%d pending: added in %v (%.0f/s), heap %.0f MB more\n", *pending, took.Round(time.Millisecond), float64(*pending)/took.Seconds(), heap()-before)
	must(p.q.Close())
	began = time.Now()
	p = s.peer()
	fmt.Printf("%d pending: opened in %v\n", *pending, time.Since(began).Round(time.Millisecond))
	lifeOf(p, 1000, fmt.Sprintf("whole life beside %d pending", *pending))
}

// overdue measures how long it takes to work off what is overdue at the start.
func overdue() {
	s := newStore(onEmbedded)
	defer s.remove()
	p := s.peer()
	fill(p, *backlog, within(0, 1))
	before, peak, began := heap(), 0.0, time.Now()
	var f flow
	defer f.work(p)()
	for f.count() < *backlog && time.Since(began) < 20*time.Minute {
		peak = max(peak, heap())
		time.Sleep(200 * time.Millisecond)
	}
	fmt.Printf("%d overdue at the start: ran in %v, heap at most %.0f MB more\n", f.count(), time.Since(began).Round(time.Millisecond), peak-before)
}

// cascade measures how late jobs are while those of a far bucket are moved to near ones.
func cascade() {
	const (
		near, lead = 5 * time.Second, 20 * time.Second
		filling    = 15_000 // jobs that can be added in a second
	)
	took := time.Duration(*pending/filling)*time.Second + 30*time.Second
	// Buckets begin at the multiples of their width since 1970. The second far bucket of
	// this width begins when the filling and a margin of half a lead are over.
	start := time.Now().Add(took + 2*lead).Truncate(near)
	s := newStore(onEmbedded, tickwheel.Buckets(near, time.Duration(start.Unix())*time.Second, lead, 10*time.Second))
	defer s.remove()
	p := s.peer()
	fill(p, *pending, within(time.Until(start)+10*time.Minute, time.Hour))
	fmt.Printf("cascade: heap %.0f MB; it begins in %v\n", heap(), time.Until(start.Add(-lead)).Round(time.Second))
	time.Sleep(time.Until(start.Add(-lead)))
	lifeOf(p, 1000, fmt.Sprintf("whole life while %d cascade", *pending))
}

// ownSchedules measures what the server has of itself. There are no claims, attempts or leases, so it is less than a
// job's life, which is measured beside it.
func ownSchedules() {
	s := newStore(onJetStream)
	defer s.remove()
	nc := get(connectNATS(s.url))
	defer nc.Close()
	js := get(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(10000)))
	get(js.CreateStream(background, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>", "d.>"}, AllowMsgSchedules: true, AllowMsgTTL: true}))
	for _, rate := range []int{200, 1000} {
		lifeOf(serverSchedules{js}, rate, "JetStream's own schedules")
		life(onJetStream, "whole life", rate)
	}
}
