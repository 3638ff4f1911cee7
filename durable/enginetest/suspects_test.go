package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// The simulation in virtual time: whatever the killer's position, however long it takes to
// kill, and with few attempts or many, no innocent of 600 dies, and the killer does
// within its attempts and the logarithm of 600.
func TestKillers(t *testing.T) {
	for _, k := range []killing{
		{innocents: 600, first: 0, maxAttempts: 25},
		{innocents: 600, first: 300, maxAttempts: 25, after: time.Second},
		{innocents: 600, first: 0, maxAttempts: 3},
		{innocents: 600, first: 300, maxAttempts: 3, after: time.Second},
		{innocents: 600, first: 600, maxAttempts: 3, after: 1900 * time.Millisecond},
		{innocents: 600, first: 255, maxAttempts: 3, after: 10 * time.Second},
		{innocents: 600, first: 100, maxAttempts: 2, after: 100 * time.Millisecond},
		{innocents: 600, first: 20, killers: 7, maxAttempts: 4, after: time.Second},
		{innocents: 0, first: 0, maxAttempts: 1}, // it begins once
		{innocents: 40, first: 20, maxAttempts: 3, after: time.Second, concurrency: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			k.length, k.killers = 2*time.Second, max(k.killers, 1)
			if k.concurrency == 0 {
				k.concurrency = 256
			}
			k.run(t, NewMemory())
		})
	}
}

// Suspects whose handlers take long hold up nobody: neither the fresh jobs, nor one
// another for longer than a lease each. And fresh jobs do not keep them from beginning.
func TestSuspectsWithLongHandlers(t *testing.T) {
	const long = 8
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		e := newMortal(m.Open(t))
		a := open(t, e).handle("long", func(context.Context, *durable.Attempt) error { <-e.life.Done(); return nil })
		for range long {
			a.add(durable.Job{Kind: "long"})
		}
		a.start().awaitRuns(long)
		e.kill()
		<-a.done

		b := open(t, m.Open(t), durable.WithConcurrency(24)).
			handle("long", sleeps(time.Hour)).handle(kind, sleeps(100*time.Millisecond)).start()
		for range 100 * int(long*b.lease/time.Second) { // 10 of 24 slots
			b.add(durable.Job{Kind: kind})
			time.Sleep(10 * time.Millisecond)
		}
		begun := 0
		for _, run := range b.ran() {
			if run.Job.Kind == kind {
				require.Less(t, run.at.Sub(run.Due), 50*time.Millisecond)
			} else {
				begun++
			}
		}
		require.Equal(t, long, begun)
		b.drain()
	})
}
