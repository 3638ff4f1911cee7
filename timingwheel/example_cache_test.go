package timingwheel_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// cache is a map whose values expire, each after a time of its own.
type cache struct {
	expiry *timingwheel.Keyed[string]

	mu    sync.Mutex // lock order: mu, expiry
	items map[string]*item
}

type item struct{ value string }

func newCache(w *timingwheel.TimingWheel) *cache {
	return &cache{expiry: timingwheel.NewKeyed[string](w), items: map[string]*item{}}
}

// set holds the lock over both steps, so that the value and the expiry belong together. It
// returns an error if the wheel is stopped.
func (c *cache) set(key, value string, ttl time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	it := &item{value}
	if _, err := c.expiry.Schedule(key, ttl, func() { c.expire(key, it) }); err != nil {
		return err
	}
	c.items[key] = it
	return nil
}

// expire deletes an item, unless the key has another by now: set may have had the lock
// while this function, which had started, waited for it.
func (c *cache) expire(key string, it *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items[key] == it {
		delete(c.items, key)
	}
}

func (c *cache) get(key string) (value string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it, ok := c.items[key]
	if !ok {
		return "", false
	}
	return it.value, true
}

func (c *cache) remove(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expiry.Cancel(key)
	delete(c.items, key)
}

// A cache whose values expire. Its expiry function checks under the cache's own lock that
// the value is still the one that it was scheduled for.
func ExampleKeyed_cache() {
	w := timingwheel.New()
	defer w.Stop()
	c := newCache(w)
	c.set("session", "alice", time.Millisecond)
	for ok := true; ok; _, ok = c.get("session") {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("expired")
	c.set("session", "bob", time.Hour)
	fmt.Println(c.get("session"))
	c.remove("session")
	fmt.Println(w.Len(), "pending")
	// Output:
	// expired
	// bob true
	// 0 pending
}
