package engine

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/tickwheel/tickwheel/bucket"
)

// profiler is a *Profile, which therefore is not linked into programs without one: 17 KB.
type profiler interface {
	init(shards int)
	oneIn() int
	gap() int64
	note(s *shard, r ref)
	recurrence(s *shard, r ref) *recurrence
	again(s *shard, of *recurrence, r ref, now time.Duration)
	forget(s *shard)
}

// Profile samples the entries that are added, each with the stack of the caller. One in rate is
// sampled, each by chance, so that no pattern of the adds escapes.
//
// Nothing tells a sample that its entry has ended: the entry's ref does. So a cancel, a reset
// and a firing cost the same with a profile and without one.
type Profile struct {
	rate int
	mean float64 // of gap, but for the rounding

	samplers []sampler  // of each shard
	pass     sync.Mutex // held by the one who looks at the samples of all shards. Lock order: pass, shard
}

// origin is the stack of a caller. It is in memory once for all samples that have it, and is
// garbage when none has it any more.
type origin = unique.Handle[frames]

// frames are the innermost of a stack, and zeros. More would make a sample dearer.
type frames [48]uintptr

// NewProfile returns a profile for one engine, of one in rate adds.
func NewProfile(rate int) *Profile {
	return &Profile{rate: rate, mean: -1 / math.Log1p(-1/float64(rate))}
}

func (p *Profile) init(shards int) { p.samplers = make([]sampler, shards) }
func (p *Profile) oneIn() int      { return p.rate }

// of returns the sampler of a shard, whose lock guards it.
func (p *Profile) of(s *shard) *sampler { return &p.samplers[s.id] }

// gap returns the number of adds until the next sample: as many as independent draws of one in
// rate would take.
func (p *Profile) gap() int64 {
	return 1 + int64(rand.ExpFloat64()*p.mean)
}

// The caller of the methods that follow holds the shard's lock.

// note makes a sample of an entry that was just added.
func (p *Profile) note(s *shard, r ref) {
	s.nextSample += p.gap()
	var st frames
	runtime.Callers(3, st[:]) // without Callers, note and add
	p.keep(s, sample{recurrence{origin: unique.Make(st)}, r.index, r.generation, s.clock.Now()})
}

// recurrence returns what all samples of a ticker or a job will have, whose first entry was just
// added; nil if that was not sampled.
func (p *Profile) recurrence(s *shard, r ref) *recurrence {
	q := p.of(s)
	if q.end == q.begin {
		return nil
	}
	sa := q.at(q.end - 1)
	if sa.ref() != r {
		return nil
	}
	q.last++
	sa.number = q.last
	of := sa.recurrence
	return &of
}

// again makes a sample of another entry of a ticker or a job.
func (p *Profile) again(s *shard, of *recurrence, r ref, now time.Duration) {
	p.keep(s, sample{*of, r.index, r.generation, now})
}

// forget drops all samples of a shard, whose entries have ended.
func (p *Profile) forget(s *shard) { *p.of(s) = sampler{} }

// keep keeps a sample, and looks at two others. So while as many entries are pending, at
// most about half of the samples are of entries that have ended, and no call looks at them all.
func (p *Profile) keep(s *shard, sa sample) {
	q := p.of(s)
	if !q.frozen {
		p.sweep(s)
		p.sweep(s)
	}
	q.push(sa)
}

// sweep looks at the oldest sample. It drops the sample if its entry has ended. Otherwise it puts it
// behind all others.
func (p *Profile) sweep(s *shard) {
	q := p.of(s)
	if q.begin == q.end {
		return
	}
	if sa := q.pop(); s.isPending(sa.ref()) {
		q.push(sa)
	}
}

// drop drops those of so many samples whose entries have ended: keep has dropped none since a pass
// began. The caller does not hold the shard's lock.
func (p *Profile) drop(s *shard, looks int) {
	s.lockLast()
	defer s.unlock()
	for range looks {
		p.sweep(s)
	}
}

// ProfileRate returns of how many adds one is sampled, and 0 if none is.
func (e *Engine) ProfileRate() int {
	if p := e.driver.profile; p != nil {
		return p.oneIn()
	}
	return 0
}

// Origin is a stack, and the samples of what it has added and is pending. The times are sums of
// all samples.
type Origin struct {
	Stack     []uintptr
	Pending   int64
	Remaining float64 // seconds until they are due
	Waited    float64 // seconds since they were added
}

// Profile returns the samples of what is pending, by their stacks, in no order. The engine
// must have a profile.
func (e *Engine) Profile() []Origin {
	p := e.driver.profile.(*Profile)
	p.pass.Lock()
	defer p.pass.Unlock()
	found := map[origin]*Origin{}
	for i := range e.shards {
		s := &e.shards[i]
		pass := pass{s: s, q: p.of(s), found: found, seen: map[uint32]bool{}}
		for looks := pass.run(); looks > 0; looks -= SliceLen {
			p.drop(s, min(looks, SliceLen))
		}
	}
	origins := make([]Origin, 0, len(found))
	for of, o := range found {
		st := of.Value()
		o.Stack = slices.DeleteFunc(st[:], func(pc uintptr) bool { return pc == 0 })
		origins = append(origins, *o)
	}
	return origins
}

// pass looks at the samples of a shard, the newest first, and adds those of what is pending. After
// every 256 it releases the lock. Meanwhile no sample leaves its place in the queue.
//
// A ticker or a job with a short period has a new sample before the pass has come to the old
// one. So at the end the pass looks at the newest samples once more, and adds tickers and
// jobs that it has not seen. Timers that their own functions reset have no such
// second chance. But they are among the newest, to which the pass comes first.
type pass struct {
	s     *shard
	q     *sampler // the shard's
	found map[origin]*Origin
	seen  map[uint32]bool // tickers and jobs, by their numbers
	begun int             // where the queue ended when the pass began
	now   time.Duration   // of the present slice
}

// lastLooks is how many samples a pass looks at under one lock at its end: 50 us.
const lastLooks = 4096

// run returns how many samples there are at the end.
func (p *pass) run() (samples int) {
	next := p.begin()
	for more := true; more; {
		next, more = p.slice(next)
	}
	return p.end()
}

func (p *pass) begin() (next int) {
	p.s.lockLast()
	defer p.s.unlock()
	p.q.frozen = true
	p.begun = p.q.end
	return p.begun
}

// slice looks at the samples before next, and returns where it has come to.
func (p *pass) slice(next int) (last int, more bool) {
	p.s.lockLast()
	defer p.s.unlock()
	q := p.q
	p.now = p.s.clock.Now()
	next = min(next, q.end) // the queue is empty if the wheel was stopped
	last = max(q.begin, next-SliceLen)
	for place := next - 1; place >= last; place-- {
		p.look(q.at(place))
	}
	return last, last > q.begin
}

// end ends the pass, and returns how many samples there are.
func (p *pass) end() (samples int) {
	p.s.lockLast()
	defer p.s.unlock()
	q := p.q
	q.frozen = false
	p.now = p.s.clock.Now()
	for place := q.end - 1; place >= max(p.begun, q.end-lastLooks); place-- {
		if sa := q.at(place); sa.number != 0 {
			p.look(sa)
		}
	}
	return q.end - q.begin
}

// look adds a sample if its entry is pending.
func (p *pass) look(sa *sample) {
	i, ok := p.s.arena.Find(sa.index, sa.generation)
	if !ok || p.seen[sa.number] {
		return
	}
	if sa.number != 0 {
		p.seen[sa.number] = true
	}
	o := p.found[sa.origin]
	if o == nil {
		o = new(Origin)
		p.found[sa.origin] = o
	}
	o.Pending++
	o.Remaining += max(0, p.s.clock.duration(p.s.deadline(i))-p.now).Seconds()
	o.Waited += (p.now - sa.added).Seconds()
}

// sampler has the samples of one shard as a queue. The shard's nextSample is
// what Counts.Scheduled will be with the next one; without a profile it is far below.
//
// The queue is in small chunks, so that no call of keep takes long: as a slice it would
// be copied when it grows.
type sampler struct {
	chunks     []*sampleChunk
	begin, end int    // of the queue, counted from the first chunk
	frozen     bool   // a pass is under way, and no sample leaves its place
	last       uint32 // number of a recurrence
}

type sampleChunk [sampleChunkLen]sample

const sampleChunkLen = 64

// sample is an entry that may be pending and when it was added, in 32 bytes. It keeps nothing alive
// but the origin.
type sample struct {
	recurrence
	index      bucket.Index
	generation uint64
	added      time.Duration
}

// recurrence is what all samples of one ticker or job have in common.
type recurrence struct {
	origin origin
	number uint32 // among the tickers and jobs of the shard; 0: it is none
}

func (sa *sample) ref() ref { return ref{sa.index, sa.generation} }

// at returns the sample at a place from begin to end.
func (q *sampler) at(place int) *sample {
	return &q.chunks[place/sampleChunkLen][place%sampleChunkLen]
}

func (q *sampler) push(sa sample) {
	if q.end == len(q.chunks)*sampleChunkLen {
		q.chunks = append(q.chunks, new(sampleChunk))
	}
	*q.at(q.end) = sa
	q.end++
}

// pop takes the oldest sample. There must be one.
func (q *sampler) pop() sample {
	sa := *q.at(q.begin)
	if q.begin++; q.begin == sampleChunkLen {
		q.chunks[0] = nil
		q.chunks, q.begin, q.end = q.chunks[1:], 0, q.end-sampleChunkLen
	}
	return sa
}
