package engine

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
)

// profiler is a *Profile, which therefore is not linked into programs without one: 17 KB.
type profiler interface {
	oneIn() int
	gap() int64
	note(s *shard, r ref)
	keep(s *shard, r ref, origin uint32, now time.Duration)
}

// Profile has the stacks of those who added the entries that were sampled. One in rate
// is, each by chance, so that no pattern of the adds escapes.
//
// Nothing tells a sample that its entry has ended: the entry's ref does. So a cancel, a reset
// and a firing cost the same with a profile and without one. A shard has its samples, and a
// sample has no pointer, so it keeps nothing alive.
type Profile struct {
	rate int
	mean float64 // of gap, but for the rounding

	mu      sync.Mutex       // lock order: shard, mu
	origins map[stack]uint32 // the number of each stack, from 1. A program has few, so they stay
}

// stack has the innermost frames of a stack, and zeros. More would make a sample dearer.
type stack [48]uintptr

// sampler has the samples of one shard, whose lock guards it. The shard's nextSample is what
// Counts.Scheduled will be with the next one; without a profile it is far below.
type sampler struct {
	samples []sample
	hand    int // the next of samples that sweep looks at
}

// sample is 24 bytes, an entry that may be pending and when it was added.
type sample struct {
	index      bucket.Index
	origin     uint32 // the number of the stack
	generation uint64
	added      time.Duration
}

func (sa *sample) ref() ref { return ref{sa.index, sa.generation} }

// NewProfile returns a profile for one engine, of one in rate adds.
func NewProfile(rate int) *Profile {
	return &Profile{rate: rate, mean: -1 / math.Log1p(-1/float64(rate)), origins: map[stack]uint32{}}
}

func (p *Profile) oneIn() int { return p.rate }

// gap returns the number of adds until the next sample: as many as independent draws of one in
// rate would take.
func (p *Profile) gap() int64 {
	return 1 + int64(rand.ExpFloat64()*p.mean)
}

// origin returns the number of its caller's stack.
func (p *Profile) origin() uint32 {
	var st stack
	runtime.Callers(4, st[:]) // without Callers, origin, note and add
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.origins[st]
	if !ok {
		n = uint32(len(p.origins) + 1)
		p.origins[st] = n
	}
	return n
}

// The caller of the methods that follow holds the shard's lock.

// note makes a sample of an entry that was just added.
func (p *Profile) note(s *shard, r ref) {
	s.nextSample += p.gap()
	p.keep(s, r, p.origin(), s.clock.Now())
}

// keep keeps a sample, and looks at two others. So the dead ones are half of all at most
// while as many are pending, and no call looks at them all.
func (p *Profile) keep(s *shard, r ref, origin uint32, now time.Duration) {
	s.sweep()
	s.sweep()
	s.sampler.samples = append(s.sampler.samples, sample{r.index, origin, r.generation, now})
}

// originOf returns the number of the stack of the entry that was just added, and 0 if it was
// not sampled.
func (s *sampler) originOf(r ref) uint32 {
	if last := len(s.samples) - 1; last >= 0 && s.samples[last].ref() == r {
		return s.samples[last].origin
	}
	return 0
}

// sweep looks at one sample, and drops it if its entry has ended.
func (s *shard) sweep() {
	p := &s.sampler
	if p.hand >= len(p.samples) {
		p.hand = 0
		if cap(p.samples) > 4*max(len(p.samples), 64) {
			p.samples = slices.Clone(p.samples)
		}
	}
	switch last := len(p.samples) - 1; {
	case last < 0:
	case s.isPending(p.samples[p.hand].ref()):
		p.hand++
	default:
		p.samples[p.hand] = p.samples[last]
		p.samples = p.samples[:last]
	}
}

// Origin is a stack, and the samples of what it has added and is pending. The times are sums of
// all samples.
type Origin struct {
	Stack     []uintptr
	Pending   int64
	Remaining float64 // seconds until they are due
	Waited    float64 // seconds since they were added
}

// ProfileRate returns of how many adds one is sampled, and 0 if none is.
func (e *Engine) ProfileRate() int {
	if p := e.driver.profile; p != nil {
		return p.oneIn()
	}
	return 0
}

// Profile returns the samples of what is pending, by their stacks, in no order. The engine
// must have a profile.
func (e *Engine) Profile() []Origin {
	byNumber := map[uint32]*Origin{}
	for i := range e.shards {
		e.shards[i].profileTo(byNumber)
	}
	p := e.driver.profile.(*Profile)
	p.mu.Lock()
	defer p.mu.Unlock()
	origins := make([]Origin, 0, len(byNumber))
	for st, n := range p.origins {
		if o := byNumber[n]; o != nil {
			o.Stack = slices.DeleteFunc(st[:], func(pc uintptr) bool { return pc == 0 })
			origins = append(origins, *o)
		}
	}
	return origins
}

// profileTo adds the samples of what is pending. It looks at a copy, in slices, since there
// may be many, and the lock is for callers that add.
func (s *shard) profileTo(byNumber map[uint32]*Origin) {
	s.lockLast()
	samples := slices.Clone(s.sampler.samples)
	s.unlock()
	for slice := range slices.Chunk(samples, SliceLen) {
		s.profileSlice(slice, byNumber)
	}
}

func (s *shard) profileSlice(samples []sample, byNumber map[uint32]*Origin) {
	s.lockLast()
	defer s.unlock()
	now := s.clock.Now()
	for _, sa := range samples {
		i, ok := s.arena.Find(sa.index, sa.generation)
		if !ok {
			continue
		}
		o := byNumber[sa.origin]
		if o == nil {
			o = new(Origin)
			byNumber[sa.origin] = o
		}
		o.Pending++
		o.Remaining += max(0, s.clock.duration(s.deadline(i))-now).Seconds()
		o.Waited += max(0, now-sa.added).Seconds()
	}
}
