//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable"
	tickwheel "github.com/tickwheel/tickwheel/durable/jetstream"
)

// benchmarks measure the JetStream engine.
func benchmarks() (all []scenario) {
	for _, b := range []struct {
		name string
		run  func()
	}{
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
	} {
		all = append(all, scenario{b.name, func() error { b.run(); return nil }})
	}
	return all
}

// thousand is how many handlers run at once where it is not them that are measured.
var thousand = durable.WithConcurrency(1000)

// small is a job of a common size.
var small = durable.Job{Kind: kind, Payload: make([]byte, 100)}

// syncCost prints what a synced write costs on this disk at this moment, which is what
// the other figures are to be read beside.
func syncCost() {
	f := get(os.CreateTemp(os.Getenv("BENCH_DIR"), "sync"))
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for range 300 {
		began := time.Now()
		get(f.Write(make([]byte, 4096)))
		must(f.Sync())
		took = append(took, time.Since(began))
	}
	fmt.Printf("a synced write of 4 KiB: p50 %s, p99 %s\n", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)))
}

// accept measures how many jobs a second are accepted, each by a call of its own.
func accept(engine, title string, callers ...int) {
	for _, n := range callers {
		s := newStore(engine)
		q := s.open(thousand)
		var accepted atomic.Int64
		var all group
		job := small
		job.After = 24 * time.Hour
		before, began := cpu(), time.Now()
		for range n {
			all.run(func() {
				for time.Since(began) < *length/2 {
					if _, err := q.Add(context.Background(), job); err == nil {
						accepted.Add(1)
					}
				}
			})
		}
		all.wait()
		fmt.Printf("%s, %4d callers: %.0f, %v of CPU each\n", title, n,
			float64(accepted.Load())/time.Since(began).Seconds(), each(cpu()-before, accepted.Load()))
		s.remove()
	}
}

// life measures whole lives at several rates: add, fetch, claim, run, done.
func life(engine, title string, rates ...int) {
	for _, rate := range rates {
		s := newStore(engine)
		lifeOf(s.open(thousand), rate, title)
		s.remove()
	}
}

// lifeOf adds jobs that are due 1 to 3 s later at a rate, and runs them.
func lifeOf(q *durable.Queue, rate int, title string) {
	c := newCrew()
	c.work(q, []string{kind}, "")
	time.Sleep(time.Second)
	before := cpu()
	added := addAtRate(q, []string{kind}, rate, *length, time.Second)
	c.await(added)
	used := cpu() - before
	c.end()
	fmt.Printf("%s at %5d/s: %d added, %d ran; %s; %v of CPU each\n", title, rate, added, c.count(), latest(lateOf(c.runs)), each(used, added))
}

// besidePending measures what jobs take that wait, and how long it takes to open their store.
func besidePending() {
	s := newStore(onEmbedded)
	defer s.remove()
	q := s.open(thousand)
	before, began := heap(), time.Now()
	fillStore(q, *pending, small, 2*time.Hour, 22*time.Hour)
	took := time.Since(began)
	fmt.Printf("%d pending: added in %v (%.0f/s), heap %.0f MB more\n", *pending, took.Round(time.Millisecond), float64(*pending)/took.Seconds(), heap()-before)
	must(q.Close())
	began = time.Now()
	q = s.open(thousand)
	fmt.Printf("%d pending: opened in %v\n", *pending, time.Since(began).Round(time.Millisecond))
	lifeOf(q, 1000, fmt.Sprintf("whole life beside %d pending", *pending))
}

// overdue measures how long it takes to work off what is overdue at the start.
func overdue() {
	jobs := *backlog
	s := newStore(onEmbedded)
	defer s.remove()
	q := s.open(thousand)
	fillStore(q, jobs, small, 0, time.Millisecond)
	before, peak, began := heap(), 0.0, time.Now()
	c := newCrew()
	c.work(q, []string{kind}, "")
	for c.count() < jobs && time.Since(began) < 20*time.Minute {
		peak = max(peak, heap())
		time.Sleep(200 * time.Millisecond)
	}
	fmt.Printf("%d overdue at the start: ran in %v, heap at most %.0f MB more\n", c.count(), time.Since(began).Round(time.Millisecond), peak-before)
	c.end()
}

// cascade measures how late jobs are while those of a far bucket are moved to near ones.
func cascade() {
	const near, lead = 5 * time.Second, 20 * time.Second
	fill := time.Duration(*pending / *filling)*time.Second + 30*time.Second
	// Buckets begin at the multiples of their width since 1970. The second far bucket of
	// this width begins when the filling and a margin of half a lead are over.
	start := time.Now().Add(fill + 2*lead).Truncate(near)
	s := newStore(onEmbedded, tickwheel.Buckets(near, time.Duration(start.Unix())*time.Second, lead, 10*time.Second))
	defer s.remove()
	q, began := s.open(thousand), time.Now()
	fillStore(q, *pending, small, time.Until(start)+10*time.Minute, time.Hour)
	fmt.Printf("cascade: heap %.0f MB\n", heap())
	fmt.Printf("cascade: %d added in %v; it begins in %v\n", *pending, time.Since(began).Round(time.Second), time.Until(start.Add(-lead)).Round(time.Second))
	time.Sleep(time.Until(start.Add(-lead)))
	lifeOf(q, 1000, fmt.Sprintf("whole life while %d cascade", *pending))
}

// ownSchedules measures what the server has of itself: messages with a schedule, which it
// publishes to another subject when their time has come. They are consumed and
// acknowledged; there are no claims, attempts or leases, so it is less than a job's life,
// which is measured beside it.
func ownSchedules() {
	s := newStore(onJetStream)
	defer s.remove()
	nc := get(nats.Connect(s.url()))
	defer nc.Close()
	js := get(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(10000)))
	get(js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>", "d.>"}, AllowMsgSchedules: true, AllowMsgTTL: true}))
	for _, rate := range []int{200, 1000} {
		scheduleAt(js, rate)
		life(onJetStream, "whole life", rate)
	}
}

func scheduleAt(js jetstream.JetStream, rate int) {
	cons := get(js.CreateConsumer(context.Background(), "S", jetstream.ConsumerConfig{
		FilterSubject: "d.>", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, DeliverPolicy: jetstream.DeliverNewPolicy}))
	var mu sync.Mutex
	var late []time.Duration
	consuming := get(cons.Consume(func(m jetstream.Msg) {
		if due, err := strconv.ParseInt(string(m.Data()), 10, 64); err == nil {
			mu.Lock()
			late = append(late, time.Since(time.Unix(0, due)))
			mu.Unlock()
		}
		m.Ack()
	}))
	defer consuming.Stop()
	before, began, added := cpu(), time.Now(), 0
	for ; time.Since(began) < *length; time.Sleep(time.Millisecond) {
		for due := int(time.Since(began).Seconds() * float64(rate)); added < due; added++ {
			// The server's schedules have whole seconds.
			at := time.Now().Add(time.Second + rand.N(2*time.Second)).Truncate(time.Second).Add(time.Second)
			m := nats.NewMsg(fmt.Sprintf("s.%d.%d", rate, added))
			m.Data = strconv.AppendInt(nil, at.UnixNano(), 10)
			m.Header.Set("Nats-Schedule", "@at "+at.UTC().Format(time.RFC3339))
			m.Header.Set("Nats-Schedule-Target", fmt.Sprintf("d.%d.%d", rate, added))
			get(js.PublishMsgAsync(m, jetstream.WithStallWait(10*time.Second)))
		}
	}
	came := func() []time.Duration { mu.Lock(); defer mu.Unlock(); return slices.Clone(late) }
	for end := time.Now().Add(time.Minute); len(came()) < added && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	used := cpu() - before
	all := came()
	fmt.Printf("JetStream's own schedules at %4d/s: %d added, %d came; %s; %v of CPU each\n", rate, added, len(all), latest(all), each(used, added))
}
