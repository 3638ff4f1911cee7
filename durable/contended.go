package durable

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/batch"
)

// adding is a record on its way to the engine.
type adding struct {
	rec   driver.Record
	ref   Ref
	found Ref // for Job.Found, which must not change after Add has returned
	err   error
	done  chan struct{} // closed when ref, found and err are set

	contended bool // it waits for a key, or has waited
}

// contendedEvery is the least time between two tries of one key.
const contendedEvery = 20 * time.Millisecond

// contended are the Adds whose keys open transactions hold, or jobs that are about to begin
// (held.Err). They are tried again
// and again, apart from all others, which must not wait for a transaction or a key of somebody
// else. The engine
// decides how long: it returns another error for a key that stays held.
type contended struct {
	batch *batch.Batcher[*adding]

	mu   sync.Mutex
	keys map[string]int // how many Adds wait for each
}

func newContended(insert func([]*adding)) *contended {
	byKey := func(items []*adding) {
		slices.SortStableFunc(items, func(a, b *adding) int { return strings.Compare(a.rec.Key, b.rec.Key) })
		for len(items) > 0 {
			n := 1
			for n < len(items) && items[n].rec.Key == items[0].rec.Key {
				n++
			}
			insert(items[:n])
			items = items[n:]
		}
	}
	return &contended{batch: batch.New(byKey, contendedEvery, batch.Max), keys: map[string]int{}}
}

// has reports whether an Add waits for a key. The next Add of that key waits with it at once.
func (c *contended) has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[key] > 0
}

// put adds an Add to those that wait. It returns false if the Queue is closed.
func (c *contended) put(it *adding) bool {
	c.mu.Lock()
	if !it.contended {
		it.contended = true
		c.keys[it.rec.Key]++
	}
	c.mu.Unlock()
	return c.batch.Put(it)
}

// leave removes an Add that has its answer.
func (c *contended) leave(it *adding) {
	if !it.contended {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys[it.rec.Key]--; c.keys[it.rec.Key] == 0 {
		delete(c.keys, it.rec.Key)
	}
}
