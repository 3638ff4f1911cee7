package bucket

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// held is an entry as its owner knows it: by its handle.
type held struct {
	i          Index
	generation uint64
	deadline   int64
	tag        Tag
	b          int
}

// room is an arena and what its owners know of it.
type room struct {
	t       testing.TB
	a       Arena
	buckets [8]Bucket
	held    []held
	r       *rand.Rand
}

func newRoom(t testing.TB, seed uint64) *room {
	m := &room{t: t, r: rand.New(rand.NewPCG(seed, 7))}
	for k := range m.buckets {
		m.buckets[k].Open(&m.a, int64(k))
	}
	return m
}

func (m *room) add() {
	h := held{deadline: m.r.Int64(), tag: Tag(m.r.IntN(256)), b: m.r.IntN(len(m.buckets))}
	h.i, h.generation = m.a.Alloc(h.deadline, task, h.tag)
	m.buckets[h.b].Append(&m.a, h.i)
	m.held = append(m.held, h)
}

// find returns where the entry is, after checking that it is what it was.
func (m *room) find(h held) Index {
	i, ok := m.a.Find(h.i, h.generation)
	if !ok || m.a.Deadline(i) != h.deadline || m.a.Tag(i) != h.tag || m.a.Task(i) == nil {
		require.Fail(m.t, "an entry is not what it was")
	}
	if i>>chunkBits > h.i>>chunkBits {
		require.Fail(m.t, "an entry has moved to a chunk of a higher number")
	}
	return i
}

func (m *room) free(n int) held {
	h := m.held[n]
	last := len(m.held) - 1
	m.held[n], m.held = m.held[last], m.held[:last]
	i := m.find(h)
	end := m.a.Remove
	if m.r.IntN(4) == 0 {
		m.a.Unlink(i)
		end = m.a.Free
	}
	if _, tag := end(i); tag != h.tag {
		require.Fail(m.t, "another tag")
	}
	m.a.Tidy(1)
	if _, ok := m.a.Find(h.i, h.generation); ok {
		require.Fail(m.t, "a freed entry is found")
	}
	return h
}

func (m *room) verify() {
	m.t.Helper()
	require.NoError(m.t, m.a.Verify(func(yield func(*Bucket) bool) {
		for k := range m.buckets {
			if !yield(&m.buckets[k]) {
				return
			}
		}
	}))
	require.Equal(m.t, len(m.held), m.a.Len())
	for _, h := range m.held {
		m.find(h)
	}
}

// The owners find their entries, and the rings keep their order, however the arena moves
// them.
func TestTidyModel(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		m := newRoom(t, seed)
		var gone []held
		moved := 0
		for round := range 6 {
			for len(m.held) < 12_000+4000*round {
				m.add()
			}
			for len(m.held) > 200 {
				gone = append(gone, m.free(m.r.IntN(len(m.held))))
				if m.r.IntN(3) == 0 {
					m.add()
				}
				if m.r.IntN(500) == 0 { // its time changes: to the end of another ring
					n := m.r.IntN(len(m.held))
					i := m.find(m.held[n])
					m.a.Unlink(i)
					m.held[n].b, m.held[n].deadline, m.held[n].tag = m.r.IntN(len(m.buckets)), 1, 2
					m.a.SetDeadline(i, 1)
					m.a.SetTag(i, 2)
					m.buckets[m.held[n].b].Append(&m.a, i)
				}
				if m.r.IntN(5000) == 0 {
					m.verify()
				}
			}
			m.verify()
			moved = max(moved, m.a.tidy.numMoved())
			for k := range m.buckets {
				before := slices.Collect(m.buckets[k].All(&m.a))
				var other Bucket
				m.buckets[k].MoveTo(&m.a, &other)
				require.Equal(t, before, slices.Collect(other.All(&m.a)))
				other.MoveTo(&m.a, &m.buckets[k])
			}
		}
		require.Positive(t, moved, "nothing has moved")
		for _, h := range gone {
			_, ok := m.a.Find(h.i, h.generation)
			require.False(t, ok)
		}
		for len(m.held) > 0 {
			m.free(0)
		}
		m.verify()
		require.Zero(t, m.a.tidy.numMoved())
	}
}

// A ring keeps its order when its entries move.
func TestTidyKeepsTheOrder(t *testing.T) {
	m := newRoom(t, 1)
	for range 50_000 {
		m.add()
	}
	for n := len(m.held) - 1; n >= 0; n-- {
		if m.held[n].generation>>tagBits%500 != 0 {
			m.free(n)
		}
	}
	require.Positive(t, m.a.tidy.numMoved())
	for k := range m.buckets {
		var generations []uint64
		for i := range m.buckets[k].All(&m.a) {
			generations = append(generations, m.a.entry(i).generation>>tagBits)
		}
		require.True(t, slices.IsSorted(generations))
	}
}

// One entry in 1024 that is left, and the sawtooths of a load that comes and goes.
func TestRoomFollowsTheEntries(t *testing.T) {
	m := newRoom(t, 2)
	peak := 400_000
	if testing.Short() {
		peak = 150_000
	}
	for range 3 {
		for len(m.held) < peak {
			m.add()
		}
		m.r.Shuffle(len(m.held), func(i, j int) { m.held[i], m.held[j] = m.held[j], m.held[i] })
		for len(m.held) > peak/300 {
			m.free(len(m.held) - 1)
		}
		for range peak / 4 { // mixed traffic
			m.add()
			m.free(len(m.held) - 1)
		}
		m.verify()
		require.False(t, m.a.IsSparse(), "room for %d, and %d entries", m.a.Cap(), m.a.Len())
		require.LessOrEqual(t, m.a.Cap(), 5*m.a.Len()/2+2*chunkLen)
		require.LessOrEqual(t, cap(m.a.chunks), 256)
	}
	for len(m.held) > 0 {
		m.free(0)
	}
	require.LessOrEqual(t, m.a.Cap(), 2*chunkLen)
}

// Buckets that were emptied and not closed keep nothing in being.
func TestEmptiedBucketsPinNothing(t *testing.T) {
	var a Arena
	buckets := make([]Bucket, 20_000)
	var all []Index
	for k := range buckets {
		buckets[k].Open(&a, 1)
		for range 20 {
			i, _ := a.Alloc(1, task, 0)
			buckets[k].Append(&a, i)
			all = append(all, i)
		}
	}
	for _, i := range all {
		a.Remove(i)
		a.Tidy(0)
	}
	require.LessOrEqual(t, a.Cap(), 2*chunkLen)
	runtime.KeepAlive(buckets)
}

// A call of Tidy does no more than it was allowed to, however much there is to do.
func TestTidyIsShort(t *testing.T) {
	m := newRoom(t, 3)
	for range 300_000 {
		m.add()
	}
	for n := len(m.held) - 1; n >= 0; n-- { // without Tidy
		if n%900 != 0 {
			i := m.find(m.held[n])
			m.a.Unlink(i)
			m.a.Free(i)
		}
	}
	require.True(t, m.a.IsSparse())
	calls := 0
	for before := m.a.tidy.numMoved(); m.a.IsSparse(); calls++ {
		m.a.Tidy(256)
		after := m.a.tidy.numMoved()
		require.LessOrEqual(t, after-before, 256/8+1)
		before = after
	}
	require.Greater(t, calls, 40)
	require.Less(t, calls, 1000)
}

// The numbers of chunks that were given back are used again, while an entry that is left
// keeps a chunk of a higher number.
func TestNumbersOfChunksAreUsedAgain(t *testing.T) {
	var a Arena
	var b Bucket
	b.Open(&a, 1)
	fill := func() {
		for a.Len() < 4*chunkLen-1 {
			i, _ := a.Alloc(0, task, 0)
			b.Append(&a, i)
		}
	}
	for range 3 {
		fill()
		require.Equal(t, 4, a.Chunks())
		for i := range a.All() {
			if i>>chunkBits != 3 {
				a.Unlink(i)
				a.Free(i)
			}
		}
		require.Less(t, a.Cap(), 4*chunkLen)
		verify(t, &a, &b)
	}
}

// An arena is sparse from the room on that Tidy promises.
func TestIsSparse(t *testing.T) {
	a := Arena{places: 12 * chunkLen, used: 4 * chunkLen}
	require.False(t, a.IsSparse())
	a.used--
	require.True(t, a.IsSparse())
}

// An arena is no longer sparse after two thirds of its capacity was freed, wherever its entries are, and
// whether or not others come.
func TestTidyKeepsUp(t *testing.T) {
	const chunks = 32
	for name, keeps := range map[string]func(c, j int, r *rand.Rand) bool{
		"nearly two of five":  func(_, _ int, r *rand.Rand) bool { return r.IntN(1000) < 380 },
		"one of three":        func(_, _ int, r *rand.Rand) bool { return r.IntN(3) == 0 },
		"one of five":         func(_, _ int, r *rand.Rand) bool { return r.IntN(5) == 0 },
		"one of ten":          func(_, _ int, r *rand.Rand) bool { return r.IntN(10) == 0 },
		"one of a hundred":    func(_, _ int, r *rand.Rand) bool { return r.IntN(100) == 0 },
		"more at the end":     func(c, j int, _ *rand.Rand) bool { return j == 1 || c > chunks*55/100 && j < chunkLen/2 },
		"more at the start":   func(c, j int, _ *rand.Rand) bool { return j == 1 || c < chunks*45/100 && j < chunkLen/2 },
		"more than half":      func(c, j int, _ *rand.Rand) bool { return j == 1 || c%3 == 0 && j < chunkLen*9/10 },
		"all but one emptied": func(c, j int, _ *rand.Rand) bool { return j == 1 || c == chunks-1 },
	} {
		for others, comes := range map[string]int{"none comes": 0, "a third": 7, "half as many": 10, "most": 15, "nearly as many": 18, "as many come": 20} {
			m := newRoom(t, 1)
			for range chunks*chunkLen - 1 {
				m.add()
			}
			for n := len(m.held) - 1; n >= 0; n-- { // without Tidy
				if h := m.held[n]; !keeps(int(h.i>>chunkBits), int(h.i&chunkMask), m.r) {
					m.a.Remove(h.i)
					m.held[n] = m.held[len(m.held)-1]
					m.held = m.held[:len(m.held)-1]
				}
			}
			m.verify()
			room, freed := m.a.Cap(), 0
			for ; m.a.IsSparse() && freed < room; freed++ {
				m.free(m.r.IntN(len(m.held)))
				if comes > m.r.IntN(20) {
					m.add()
				}
			}
			require.LessOrEqual(t, freed, room*2/3, "%s, %s", name, others)
			m.verify()
		}
	}
}

// scattered returns a room of 50 chunks, each with so many of a thousand entries.
func scattered(t *testing.T, perMille int) *room {
	m := newRoom(t, 4)
	for range 50*chunkLen - 1 {
		m.add()
	}
	kept := m.held[:0]
	for _, h := range m.held {
		if m.r.IntN(1000) < perMille {
			kept = append(kept, h)
		} else {
			m.a.Unlink(h.i)
			m.a.Free(h.i)
		}
	}
	m.held = kept
	return m
}

// Tidy begins only when 64 entries were handled. Then it moves one for four of them.
func TestTidyWorksInBatches(t *testing.T) {
	m := scattered(t, 380)
	for range 63 {
		m.a.Tidy(1)
		require.False(t, m.a.tidy.active)
	}
	m.a.Tidy(1)
	require.True(t, m.a.tidy.active)
	before := m.a.tidy.numMoved()
	const work = 4000
	m.a.Tidy(work)
	moved := m.a.tidy.numMoved() - before
	require.LessOrEqual(t, moved, work/4+1)
	require.Greater(t, moved, work/5, "the rest are looks")
	m.verify()
}

// An arena that is not sparse stays as it is. One that is sparse does not stay so, even if nothing more
// is freed.
func TestTidyFreesWhatIsSparse(t *testing.T) {
	for _, perMille := range []int{420, 380, 300, 200, 50, 2} {
		m := scattered(t, perMille)
		if perMille > 400 {
			m.a.Tidy(chunkLen * chunkLen)
			require.False(t, m.a.tidy.active)
			require.Zero(t, m.a.tidy.numMoved())
			continue
		}
		require.True(t, m.a.IsSparse())
		m.a.Tidy(chunkLen * chunkLen)
		require.False(t, m.a.IsSparse(), "%d of 1000", perMille)
		m.verify()
	}
}

// A pass ends where its source and its target meet, also if chunks that it has found full have room by
// then: it would move entries up.
func TestTidyMovesNothingUp(t *testing.T) {
	m := newRoom(t, 5)
	for range 50*chunkLen - 1 {
		m.add()
	}
	thin := func(from, to Index, perMille int) {
		kept := m.held[:0]
		for _, h := range m.held {
			if c := h.i >> chunkBits; c < from || c >= to || m.r.IntN(1000) < perMille {
				kept = append(kept, h)
			} else {
				m.a.Unlink(h.i)
				m.a.Free(h.i)
			}
		}
		m.held = kept
	}
	thin(10, 50, 200)
	require.True(t, m.a.IsSparse())
	for m.a.tidy.numMoved() == 0 {
		m.a.Tidy(tidyBatch)
	}
	require.EqualValues(t, 10, m.a.tidy.target)
	thin(0, 10, 400)
	for m.a.tidy.active {
		m.a.Tidy(tidyBatch)
	}
	m.verify()
}
