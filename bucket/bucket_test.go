package bucket

import (
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/internal/shrinking"
)

func task() {}

func alive(a *Arena, i Index, generation uint64) bool {
	_, ok := a.Find(i, generation)
	return ok
}

func verify(t *testing.T, a *Arena, buckets ...*Bucket) {
	t.Helper()
	require.NoError(t, a.Verify(slices.Values(buckets)))
}

func contents(a *Arena, b *Bucket) []Index { return slices.Collect(b.All(a)) }

// At its limit an arena says that it is full; a little later it has no index for another
// chunk. Nobody has the memory to get there: the chunks are pretended.
func TestLimit(t *testing.T) {
	a := new(Arena)
	i, _ := a.Alloc(1, task, 0)
	for used, full := range map[int]bool{1: false, maxEntries - 1: false, maxEntries: true, 1<<31 - 1: true} {
		a.used = used
		require.Equal(t, full, a.IsFull(), "%d entries", used)
	}
	a.used = 1
	a.Free(i)

	const most = 1 << 31 / chunkLen
	a = &Arena{chunks: make([]*entry, most-1), info: make([]chunkInfo, most-1), places: 1<<31 - 1, generation: 1 << tagBits}
	i, generation := a.Alloc(1, task, 0)
	require.Equal(t, Index(1<<31-chunkLen), i&^chunkMask)
	require.Less(t, i, isBucket)
	require.True(t, alive(a, i, generation))
	a.open = nil // its other entries are in use
	require.PanicsWithValue(t, "bucket: more than 2^31 entries in an arena", func() { a.Alloc(1, task, 0) })
}

// TestModel steps slices beside the rings: appends, unlinks, moves, opens and
// closes at random.
func TestModel(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 0))
		a := new(Arena)
		buckets := make([]*Bucket, 4)
		model := make([][]Index, len(buckets))
		for k := range buckets {
			buckets[k] = new(Bucket)
		}
		generations, tags := map[Index]uint64{}, map[Index]Tag{}
		mostDead := 0
		for range 1000 {
			k := r.IntN(len(buckets))
			b := buckets[k]
			switch op := r.IntN(10); {
			case !b.IsOpen():
				b.Open(a, int64(k))
			case op < 6:
				tag := Tag(r.IntN(256))
				i, generation := a.Alloc(int64(k), task, tag)
				require.NotContains(t, generations, i)
				generations[i], tags[i] = generation, tag
				b.Append(a, i)
				model[k] = append(model[k], i)
			case op < 9 && len(model[k]) > 0:
				n := r.IntN(len(model[k]))
				i := model[k][n]
				require.True(t, alive(a, i, generations[i]))
				require.Equal(t, tags[i], a.Tag(i))
				if r.IntN(4) > 0 {
					f, tag := a.Remove(i)
					require.NotNil(t, f)
					require.Equal(t, tags[i], tag)
					require.False(t, alive(a, i, generations[i]))
					require.Nil(t, a.Task(i))
					delete(generations, i)
					model[k] = slices.Delete(model[k], n, n+1)
					break
				}
				if n == 0 && r.IntN(2) == 0 {
					require.Equal(t, i, b.TakeFirst(a))
				} else {
					a.Unlink(i)
				}
				require.NotNil(t, a.Task(i))
				require.Equal(t, tags[i], a.Tag(i))
				tag := Tag(r.IntN(256))
				a.SetTag(i, tag)
				require.True(t, alive(a, i, generations[i]))
				f, freed := a.Free(i)
				require.NotNil(t, f)
				require.Equal(t, tag, freed)
				require.False(t, alive(a, i, generations[i]))
				delete(generations, i)
				model[k] = slices.Delete(model[k], n, n+1)
			case op == 9 && r.IntN(8) == 0:
				to := (k + 1) % len(buckets)
				if buckets[to].IsOpen() {
					continue
				}
				b.MoveTo(a, buckets[to])
				require.False(t, b.IsOpen())
				model[to], model[k] = model[k], nil
			case len(model[k]) == 0:
				require.Zero(t, b.First(a))
				require.Zero(t, b.TakeFirst(a))
				b.Close(a)
			}
			verify(t, a, buckets...)
			require.Equal(t, len(generations), a.Len())
			mostDead = max(mostDead, a.removed.dead.n)
			for k, b := range buckets {
				require.True(t, slices.Equal(model[k], contents(a, b)), "bucket %d", k)
				if len(model[k]) > 0 && r.IntN(1000) == 0 { // First takes the dead out of the rings
					require.Equal(t, model[k][0], b.First(a))
				}
			}
		}
		require.Equal(t, deadBatch, mostDead, "seed %d never reached a full list", seed)
	}
}

func TestMoveToTakesTheExpirationAlong(t *testing.T) {
	a := new(Arena)
	var from, to Bucket
	from.Open(a, 7)
	i, _ := a.Alloc(8, task, 0)
	from.Append(a, i)
	from.MoveTo(a, &to)
	require.EqualValues(t, 7, to.Expiration())
	require.False(t, from.IsOpen())
	require.Equal(t, []Index{i}, contents(a, &to))
	verify(t, a, &from, &to)
}

func TestAllStopsWhenToldAndSurvivesUnlinking(t *testing.T) {
	a := new(Arena)
	var b Bucket
	require.Empty(t, contents(a, &b), "a closed bucket")
	b.Open(a, 0)
	for range 10 {
		i, _ := a.Alloc(0, task, 0)
		b.Append(a, i)
	}
	seen := 0
	for i := range b.All(a) {
		if seen++; seen == 4 {
			break
		}
		a.Unlink(i)
		a.Free(i)
	}
	require.Equal(t, 7, a.Len())
	require.Len(t, slices.Collect(a.All()), 7)
	for range a.All() {
		break
	}
	verify(t, a, &b)
}

// An iteration over a ring survives that the dead are taken out of it.
func TestAllSurvivesRemoving(t *testing.T) {
	const n = 100
	a := new(Arena)
	var b Bucket
	b.Open(a, 0)
	var all []Index
	for range n {
		i, _ := a.Alloc(0, task, 0)
		b.Append(a, i)
		all = append(all, i)
	}
	for k := 1; k < n; k += 3 {
		a.Remove(all[k])
	}
	seen := 0
	for i := range b.All(a) {
		require.Equal(t, all[seen/2*3+seen%2*2], i)
		seen++
		a.Remove(i)
	}
	require.Equal(t, 67, seen)
	require.Zero(t, a.Len())
	require.Empty(t, contents(a, &b))
	verify(t, a, &b)
}

// An entry takes at most 32 bytes, as the documentation says.
func TestEntryIsSmall(t *testing.T) {
	require.LessOrEqual(t, int(unsafe.Sizeof(entry{})), 32)
}

// A handle of a freed entry must name nothing, also when its place is used again
// and when its chunk has been given back.
func TestGenerationsAreNeverUsedAgain(t *testing.T) {
	a := new(Arena)
	require.False(t, alive(a, 0, 0), "the zero handle")
	require.False(t, alive(a, 5, 1), "an index not yet made")
	seen := map[uint64]bool{}
	for range 3 {
		var all []Index
		var generations []uint64
		for range 4 * chunkLen {
			i, generation := a.Alloc(1, task, 0)
			require.False(t, seen[generation])
			seen[generation] = true
			all, generations = append(all, i), append(generations, generation)
		}
		for k, i := range all {
			require.True(t, alive(a, i, generations[k]))
			require.EqualValues(t, 1, a.Deadline(i))
			a.SetDeadline(i, 2)
			require.EqualValues(t, 2, a.Deadline(i))
			task := a.Task(i)
			require.NotNil(t, task)
			a.Free(i)
		}
		for k, i := range all {
			require.False(t, alive(a, i, generations[k]))
			require.False(t, alive(a, i, 0))
			require.False(t, alive(a, i, 1), "nor is a generation that is only a tag")
		}
	}
}

// The arena holds two chunks at the most when it is empty, and does not thrash
// at the border between two chunks.
func TestChunksAreGivenBack(t *testing.T) {
	t.Run("Free", func(t *testing.T) {
		testChunksAreGivenBack(t, func(a *Arena, i Index) {
			a.Unlink(i)
			a.Free(i)
		})
	})
	t.Run("Remove", func(t *testing.T) {
		testChunksAreGivenBack(t, func(a *Arena, i Index) {
			a.Remove(i)
			if a.IsSparse() {
				a.Tidy(0) // which moves nothing
			}
		})
	})
}

func testChunksAreGivenBack(t *testing.T, end func(a *Arena, i Index)) {
	chunks := func(a *Arena) (n int) {
		for _, c := range a.chunks {
			if c != nil {
				n++
			}
		}
		return n
	}
	r := rand.New(rand.NewPCG(1, 1))
	a := new(Arena)
	var ring Bucket
	ring.Open(a, 0)
	var all []Index
	for range 100 * chunkLen {
		i, _ := a.Alloc(0, task, 0)
		ring.Append(a, i)
		all = append(all, i)
	}
	require.LessOrEqual(t, chunks(a), 101)
	verify(t, a, &ring)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, i := range all {
		end(a, i)
	}
	verify(t, a, &ring)
	require.LessOrEqual(t, chunks(a), 2)
	require.Zero(t, ring.First(a))

	// Fill one chunk to the brim; then one more and one less need no new chunk.
	for a.used%chunkLen != chunkLen-1 {
		a.Alloc(0, task, 0)
	}
	i, _ := a.Alloc(0, task, 0)
	before := slices.Clone(a.chunks)
	for range 10 {
		a.Free(i)
		i, _ = a.Alloc(0, task, 0)
	}
	require.Equal(t, before, a.chunks)
}

// An arena that is full makes no chunk while there are removed entries, in whichever list.
func TestRemovedEntriesAreUsedAgain(t *testing.T) {
	a := new(Arena)
	var ring Bucket
	ring.Open(a, 0)
	var all []Index
	for range chunkLen - 1 { // the first chunk has one less
		i, _ := a.Alloc(0, task, 0)
		ring.Append(a, i)
		all = append(all, i)
	}
	again := func(removed []Index) {
		for _, i := range slices.Backward(removed) {
			a.Remove(i)
		}
		require.Equal(t, len(removed)+1, a.Vacancy(), "one is index 0")
		for k := range removed {
			removed[k], _ = a.Alloc(0, task, 0)
			ring.Append(a, removed[k])
		}
		require.Equal(t, chunkLen, a.Cap(), "%d removed and added", len(removed))
		verify(t, a, &ring)
	}
	for _, n := range []int{1, 5, deadBatch, deadBatch + 1, 16, 17, 100} {
		again(all[len(all)-n:])
		again(all[:n])
		all = append(all[n:], all[:n]...) // as in the ring
	}
	require.Equal(t, all, contents(a, &ring))
}

// Nothing of a task is kept, also while its entry is still in its ring.
func TestFreedTaskIsCollected(t *testing.T) {
	for name, end := range map[string]func(a *Arena, b *Bucket, i Index){
		"Free":            func(a *Arena, b *Bucket, i Index) { a.Unlink(i); a.Free(i) },
		"Remove the last": func(a *Arena, b *Bucket, i Index) { a.Remove(i) },
		"Remove another": func(a *Arena, b *Bucket, i Index) {
			last, _ := a.Alloc(0, task, 0)
			b.Append(a, last)
			a.Remove(i)
			require.Equal(t, []Index{i}, a.removed.dead.list())
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := new(Arena), new(Bucket)
			b.Open(a, 0)
			collected := make(chan struct{})
			func() {
				big := new([1 << 16]byte)
				runtime.AddCleanup(big, func(struct{}) { close(collected) }, struct{}{})
				i, _ := a.Alloc(0, func() { big[0]++ }, 0)
				b.Append(a, i)
				end(a, b, i)
			}()
			for start := time.Now(); time.Since(start) < 2*time.Minute; {
				runtime.GC()
				select {
				case <-collected:
					runtime.KeepAlive(a)
					return
				case <-time.After(time.Millisecond): // the cleanup has a goroutine of its own
				}
			}
			t.Fatal("the arena holds on to a freed task")
		})
	}
}

// Verify must be able to fail: each break of an invariant is found.
func TestVerifyFindsWhatIsBroken(t *testing.T) {
	setup := func() (a *Arena, b *Bucket, i Index) {
		a, b = new(Arena), new(Bucket)
		b.Open(a, 0)
		for range 3 {
			i, _ = a.Alloc(0, task, 0)
			b.Append(a, i)
		}
		return a, b, i
	}
	for name, breakIt := range map[string]func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket]{
		"an entry in no bucket":           func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.Unlink(i); return nil },
		"an entry that is not linked":     func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.entry(i).prev = i; return nil },
		"a dead entry in a bucket":        func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.entry(i).generation = 0; return nil },
		"a bucket with another number":    func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { b.self++; return nil },
		"a moved entry that is not found": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.entry(i).generation |= hasMoved; return nil },
		"a moved entry that does not live": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] {
			a.tidy.moved = new([movedParts]shrinking.Map[uint64, Index])
			a.tidy.moved[9].Set(9, i)
			return nil
		},
		"a bucket counted twice":   func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { return slices.Values([]*Bucket{b, b}) },
		"a bucket not told":        func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { return slices.Values([]*Bucket{}) },
		"a wrong count of used":    func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.used++; return nil },
		"a wrong count in a chunk": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.info[0].used++; return nil },
		"a free entry with a task": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.entry(a.info[0].free).task = task; return nil },
		"an open chunk not listed": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.open = nil; return nil },
		"a removed entry that lives": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] {
			a.removed.dead.push(i)
			return nil
		},
		"a removed entry with a task": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] {
			a.Remove(b.First(a))
			a.entry(a.removed.dead.all[0]).task = task
			return nil
		},
		"an entry that was removed twice": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] {
			dead := b.First(a)
			a.Remove(dead)
			a.removed.dead.push(dead)
			a.used--
			return nil
		},
		"a dead entry in no bucket": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] {
			dead := b.First(a)
			a.Remove(dead)
			a.Unlink(dead)
			return nil
		},
		"a spare entry in a bucket": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] {
			a.Remove(b.First(a))
			a.removed.spare.push(a.removed.dead.pop())
			return nil
		},
		"a spare entry that is free": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] {
			a.Remove(i)
			a.put(i)
			a.info[0].used++
			return nil
		},
		"a chunk not there": func(a *Arena, b *Bucket, i Index) iter.Seq[*Bucket] { a.places++; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, i := setup()
			verify(t, a, b)
			buckets := breakIt(a, b, i)
			if buckets == nil {
				buckets = slices.Values([]*Bucket{b})
			}
			require.Error(t, a.Verify(buckets))
		})
	}
}

// The first chunk grows. No entry changes its index meanwhile. An index of an entry that is gone names
// nothing, also one beyond the room.
func TestFirstChunkGrows(t *testing.T) {
	a := new(Arena)
	var ring Bucket
	ring.Open(a, 0)
	rooms := map[int]bool{}
	generations := map[Index]uint64{}
	for range 3 * chunkLen {
		i, generation := a.Alloc(int64(len(generations)), task, 0)
		ring.Append(a, i)
		require.Zero(t, generations[i])
		generations[i] = generation
		if !rooms[a.Cap()] {
			rooms[a.Cap()] = true
			verify(t, a, &ring)
			_, ok := a.Find(Index(a.Cap()), generation)
			require.False(t, ok)
			_, ok = a.Find(Index(a.Cap()-1), generation+1<<tagBits)
			require.False(t, ok)
		}
		for i, generation := range generations {
			require.True(t, alive(a, i, generation))
			break // one, at random
		}
	}
	require.Equal(t, map[int]bool{64: true, 256: true, 1024: true, 2048: true, 3072: true, 4096: true}, rooms)
	for i, generation := range generations {
		require.True(t, alive(a, i, generation))
	}
}
