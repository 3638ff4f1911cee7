package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// cluster is a leader with a log of which only the length is kept, and its replicas. A
// write is committed when a majority has it: the leader itself is one of them.
type cluster struct {
	wheel     *timingwheel.TimingWheel
	replicas  []*replica
	majority  int
	committed *purgatory.Threshold[int64] // offsets below it are on a majority

	mu   sync.Mutex
	end  int64 // offset of the next write; guarded by mu
	mark int64 // the mark that committed received last; guarded by mu
}

// replica fetches what the leader has, again and again, and acknowledges it.
type replica struct {
	name  string
	trip  time.Duration // there and back, on average
	loses float64       // share of acknowledgements that are lost
	from  time.Duration // it is down from this time after the start on,
	until time.Duration // until this

	acknowledged int64 // guarded by cluster.mu
	lost         int   // acknowledgements; guarded by cluster.mu
}

func newCluster(wheel *timingwheel.TimingWheel, replicas []*replica) *cluster {
	return &cluster{
		wheel:     wheel,
		replicas:  replicas,
		majority:  (len(replicas)+1)/2 + 1,
		committed: purgatory.NewThreshold[int64](wheel),
	}
}

// start has the replicas fetch until the wheel stops. None has a goroutine.
func (c *cluster) start() {
	began := time.Now()
	for _, r := range c.replicas {
		c.fetch(r, began)
	}
}

// fetch is one trip of a replica: what it acknowledges is what the leader had when the
// trip began.
func (c *cluster) fetch(r *replica, began time.Time) {
	c.mu.Lock()
	end := c.end
	c.mu.Unlock()
	trip := r.trip/2 + rand.N(r.trip)
	c.wheel.Schedule(trip, func() { // refused only when the wheel has been stopped
		now := time.Since(began)
		c.acknowledge(r, end, now >= r.from && now < r.until)
		c.fetch(r, began)
	})
}

// acknowledge says that a replica has all below an offset, unless that is lost on the
// way.
func (c *cluster) acknowledge(r *replica, end int64, down bool) {
	if mark, rises := c.record(r, end, down); rises {
		c.committed.Advance(mark) // with no lock held: it answers writes
	}
}

func (c *cluster) record(r *replica, end int64, down bool) (mark int64, rises bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if down || rand.Float64() < r.loses {
		r.lost++
		return 0, false
	}
	r.acknowledged = max(r.acknowledged, end)
	mark = c.highWater()
	rises = mark > c.mark
	c.mark = max(c.mark, mark)
	return mark, rises
}

// highWater returns the offset below which a majority has everything. It is called with
// mu held.
func (c *cluster) highWater() int64 {
	have := []int64{c.end} // the leader
	for _, r := range c.replicas {
		have = append(have, r.acknowledged)
	}
	slices.Sort(have)
	return have[len(have)-c.majority]
}

// write appends, and calls done when a majority has it, or the timeout has passed.
func (c *cluster) write(timeout time.Duration, done func(purgatory.Outcome)) error {
	c.mu.Lock()
	c.end++
	end := c.end
	c.mu.Unlock()
	_, err := c.committed.Park(end, timeout, done)
	return err
}

func (c *cluster) print(out io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.replicas {
		fmt.Fprintf(out, "replica %-6s has %d; %d acknowledgements were lost\n", r.name, r.acknowledged, r.lost)
	}
}
