package workload

import (
	"fmt"
	"runtime"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// parking is what waits under a key, for an event or a deadline.
func parking(size Size) Workload {
	spell := pick(size, 400*time.Millisecond, 150*time.Millisecond, time.Millisecond)
	many := pick(size, 1_000_000, 200_000, 1000)
	crowd := pick(size, 100_000, 50_000, 100)
	due := pick(size, 200_000, 100_000, 100)
	over := pick(size, time.Second, 500*time.Millisecond, 20*time.Millisecond)
	const alone, one, expire, weigh = "parked=0", "keys=1", "expire", "memory"
	beside, each := fmt.Sprintf("parked=%d", many), fmt.Sprintf("keys=%d", many)
	w := Workload{
		Name:  "Parking",
		Title: "Parked operations",
		Shows: "One goroutine parks an operation under a key of its own for an hour, notifies the key, and " +
			"learns that it has ended: alone, and beside " + Count(many) + " that stay parked. It parks " +
			Count(many) + " under a key each, and then notifies each; it parks " + Count(crowd) + " under one " +
			"key, and notifies that once: ns are of each operation, from its parking on. To close one " +
			"channel costs nothing for each who waits, but each has its context to end. Where they expire, " +
			Count(due) + " come due all over " + over.String() + ", and CPU is the process's for each, " +
			"parking included. Bytes are those of live objects with " + Count(many) + " parked under a key " +
			"each, and what the one who waits holds.",
		Rounds: pick(size, 3, 1, 1),
		Share:  pick(size, 90*time.Second, 12*time.Second, time.Second),
		Tables: []Table{{Caption: "one operation", Columns: []Column{
			{Head: "ns (ratio)", Config: alone, Unit: "ns/op", Ratio: true},
			{Head: "beside " + Count(many), Config: beside, Unit: "ns/op", Ratio: true},
			{Head: "beside/alone", Config: beside, Unit: "ns/op", Over: alone},
			{Head: Count(many) + " keys", Config: each, Unit: "ns/op", Ratio: true},
			{Head: Count(crowd) + " under one key", Config: one, Unit: "ns/op", Ratio: true},
			{Head: "expire, CPU ns", Config: expire, Unit: "cpu-ns/op", Ratio: true},
			{Head: "bytes", Config: weigh, Unit: "B/op", Ratio: true},
		}}},
		Headlines: []Headline{
			{Work: "park and notify beside " + Count(many) + " parked", Subject: "purgatory", Config: beside, Unit: "ns/op"},
			{Work: "bytes of each of " + Count(many) + " parked", Subject: "purgatory", Config: weigh, Unit: "B/op"},
		},
	}
	add := func(config string, run func(p subject.Parking) (ops int, values []result.Value)) {
		w.Cases = append(w.Cases, Case{
			Name: config, Configs: []string{config}, Timeout: 40 * time.Second, Without: only(subject.Parker),
			Run: func(s subject.Subject, emit Emit) {
				p := s.New(subject.Options{}).(subject.Parking)
				defer p.Stop()
				ops, values := run(p)
				emit(config, ops, 0, values...)
			},
		})
	}
	add(alone, func(p subject.Parking) (int, []result.Value) { return parkNotify(p, spell, 0) })
	add(beside, func(p subject.Parking) (int, []result.Value) { return parkNotify(p, spell, many) })
	add(each, func(p subject.Parking) (int, []result.Value) { return many, parkAll(p, many, many) })
	add(one, func(p subject.Parking) (int, []result.Value) { return crowd, parkAll(p, crowd, 1) })
	add(expire, func(p subject.Parking) (int, []result.Value) { return due, expireAll(p, due, over) })
	add(weigh, func(p subject.Parking) (int, []result.Value) { return many, weighParked(p, many) })
	return w
}

// parkNotify parks one after the other beside those that stay.
func parkNotify(p subject.Parking, spell time.Duration, beside int) (ops int, each []result.Value) {
	kept := park(p, beside, beside)
	key := beside
	ops, each = timed(spell, func() {
		parked := p.Park(time.Hour, key)
		p.Notify(key)
		mustHave(p, parked, true)
		key++
	})
	runtime.KeepAlive(kept)
	return ops, each
}

// park parks n under so many keys.
func park(p subject.Parking, n, keys int) []any {
	parked := make([]any, n)
	for i := range parked {
		parked[i] = p.Park(time.Hour, i%keys)
	}
	return parked
}

func mustHave(p subject.Parking, parked any, notified bool) {
	if p.Ended(parked) != notified {
		fail("an operation has ended with notified %v, want %v", !notified, notified)
	}
}

// parkAll parks n and then notifies the keys.
func parkAll(p subject.Parking, n, keys int) []result.Value {
	measure.Settle()
	before := measure.Now()
	parked := park(p, n, keys)
	for key := range keys {
		p.Notify(key)
	}
	for _, one := range parked {
		mustHave(p, one, true)
	}
	return perOp(before, measure.Now(), n)
}

// expireAll parks n under a key each, and lets them come due.
func expireAll(p subject.Parking, n int, over time.Duration) []result.Value {
	parked := make([]any, n)
	measure.Settle()
	before := measure.Now()
	for i := range parked {
		parked[i] = p.Park(over+over*time.Duration(i)/time.Duration(n), i)
	}
	measure.Sleep(2 * over)
	for _, one := range parked {
		mustHave(p, one, false)
	}
	return perOp(before, measure.Now(), n)
}

func weighParked(p subject.Parking, n int) []result.Value {
	before := measure.HeapBytes()
	parked := park(p, n, n)
	bytes := measure.HeapBytes() - before - float64(8*2*n) // without the slice
	runtime.KeepAlive(parked)
	return []result.Value{{Value: bytes / float64(n), Unit: "B/op"}}
}
