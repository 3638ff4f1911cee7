package bucket

import (
	"iter"
	"slices"
	"unsafe"

	"github.com/tickwheel/tickwheel/internal/nocopy"
)

const (
	chunkBits = 10
	chunkLen  = 1 << chunkBits
	chunkMask = chunkLen - 1
	firstLen  = 64 // of the first chunk, at first
)

// Index is the place of an entry in its arena. Zero is no entry. In the links of entries
// and buckets, an Index with isBucket is the number of a bucket.
type Index uint32

const isBucket Index = 1 << 31

// entry is 32 bytes, two to a cache line, so that a chunk is four pages to the
// byte. A free entry has generation 0 and nil task, and next is the next free
// entry of its chunk. The lowest 10 bits of a generation are the entry's tag, and
// the next is set once the entry has moved.
//
// The task's pointer lies among the plain words. With an array of its own, a collection with
// 5 M entries took the same time, and every add and fire touched one cache line more.
type entry struct {
	task       func()
	deadline   int64
	generation uint64
	next, prev Index
}

// Arena holds entries, 32 bytes each, in chunks of 1024. The first chunk begins with 64 entries
// (2 KB) and grows fourfold, so that a wheel with few timers is small. An Arena is not safe for
// concurrent use, and must not be copied. The zero value is empty and ready.
//
// A chunk whose entries are all free is given back to the garbage collector when another
// chunk's worth of entries is free besides. So an emptied arena holds two chunks (64 KB).
// [Arena.Tidy] keeps one remaining entry from pinning its chunk.
type Arena struct {
	_ nocopy.Mark

	chunks     []*entry    // the first entry of each; nil: given back
	info       []chunkInfo // of the chunk of the same number
	open       []uint32    // numbers of the chunks with a free entry, the next to use last
	vacant     []uint32    // numbers of the chunks given back
	places     int         // of all chunks
	generation uint64      // of the last Alloc, without its tag
	used       int         // entries
	buckets    []*Bucket   // by their numbers
	tidy       tidy
	removed    removed
}

// Tag is ten bits of each entry for the arena's user. The arena does not interpret them.
type Tag uint16

// tagBits is the part of a generation that is the tag, and the bit that tells whether the
// entry has moved. They take no part in telling entries apart. The other 53 bits count:
// at a hundred million entries a second, for 2.8 years.
const (
	tagBits  = 11
	hasMoved = 1 << (tagBits - 1)
	tagMask  = hasMoved - 1
)

type chunkInfo struct {
	free Index  // first of the chunk's free entries
	pos  uint32 // of the chunk in open, if it has a free entry and is not being emptied
	used int32
}

// entry returns an entry of a chunk that is there. With slices for the chunks, which can be short
// as well, an add and cancel took 1.02 times as long, and a request with a context 1.03.
func (a *Arena) entry(i Index) *entry {
	return (*entry)(unsafe.Add(unsafe.Pointer(a.chunks[i>>chunkBits]), uintptr(i&chunkMask)*unsafe.Sizeof(entry{})))
}

// entries returns the entries of a chunk; none if it was given back. A chunk that is short is the
// only one that there ever was.
func (a *Arena) entries(c int) []entry {
	if a.chunks[c] == nil {
		return nil
	}
	return unsafe.Slice(a.chunks[c], min(a.places, chunkLen))
}

// next and prev return the links of an entry or a bucket. A bucket is followed in its
// ring by its first entry.
func (a *Arena) next(i Index) *Index {
	if i&isBucket != 0 {
		return &a.buckets[i&^isBucket].first
	}
	return &a.entry(i).next
}

func (a *Arena) prev(i Index) *Index {
	if i&isBucket != 0 {
		return &a.buckets[i&^isBucket].last
	}
	return &a.entry(i).prev
}

// enroll gives a bucket a number, for good.
func (a *Arena) enroll(b *Bucket) Index {
	a.buckets = append(a.buckets, b)
	return isBucket | Index(len(a.buckets)-1)
}

// Alloc returns a new entry and its generation, which no other entry of this arena ever
// has. The entry is in no bucket. O(1), except when it makes a chunk. Alloc panics when
// 2^31 entries are in use.
func (a *Arena) Alloc(deadline int64, task func(), tag Tag) (Index, uint64) {
	i := a.removed.spare.pop()
	if i == 0 {
		i = a.take()
	}
	a.used++
	a.generation += 1 << tagBits
	e := a.entry(i)
	e.deadline, e.generation, e.task = deadline, a.generation|uint64(tag), task
	return i, e.generation
}

// Free ends an entry, which must be in no bucket, and returns its task and its tag.
// Nothing of the task is kept. O(1).
func (a *Arena) Free(i Index) (task func(), tag Tag) {
	e := a.entry(i)
	if e.generation&hasMoved != 0 {
		a.forget(e)
	}
	task, tag = a.end(e)
	a.put(i)
	return task, tag
}

// end ends the life of an entry, which forget has forgotten if it has moved. Its place is
// not free yet.
func (a *Arena) end(e *entry) (task func(), tag Tag) {
	task, tag = e.task, Tag(e.generation&tagMask)
	e.task, e.generation = nil, 0
	a.used--
	return task, tag
}

// Find returns where the entry is that Alloc returned with this index and generation, and
// false if it has been freed since. The entry may have moved; its tag does not matter.
// Any index and generation are allowed, also those of freed entries; generation 0 is
// never found. The result is valid until the next Tidy. O(1).
//
// Find combines Alive and Moved. Call these where every nanosecond counts: Find is too
// large to be inlined, and makes an add and cancel 3 to 6 % slower.
func (a *Arena) Find(i Index, generation uint64) (Index, bool) {
	if a.Alive(i, generation) {
		return i, true
	}
	return a.Moved(generation)
}

// Alive reports whether the entry of this generation is where Alloc has put it.
func (a *Arena) Alive(i Index, generation uint64) bool {
	c := int(i >> chunkBits)
	return generation >= 1<<tagBits && c < len(a.chunks) && a.chunks[c] != nil && int(i&chunkMask) < a.places &&
		(a.entry(i).generation^generation)>>tagBits == 0
}

// Moved returns where the entry of this generation is, if it has moved and was not freed.
func (a *Arena) Moved(generation uint64) (Index, bool) {
	if a.tidy.moved == nil {
		return 0, false
	}
	return a.tidy.part(generation).Get(generation >> tagBits)
}

// Deadline returns the deadline of a living entry.
func (a *Arena) Deadline(i Index) int64 { return a.entry(i).deadline }

// SetDeadline changes the deadline of a living entry. It does not move the entry: a
// bucket knows nothing of the deadlines of its entries.
func (a *Arena) SetDeadline(i Index, deadline int64) { a.entry(i).deadline = deadline }

// Task returns the task of a living entry.
func (a *Arena) Task(i Index) func() { return a.entry(i).task }

// SetTask changes the task of a living entry.
func (a *Arena) SetTask(i Index, task func()) { a.entry(i).task = task }

// Tag returns the tag of a living entry.
func (a *Arena) Tag(i Index) Tag { return Tag(a.entry(i).generation & tagMask) }

// SetTag changes the tag of a living entry. Its generation does not change.
func (a *Arena) SetTag(i Index, tag Tag) {
	e := a.entry(i)
	e.generation = e.generation&^tagMask | uint64(tag)
}

// maxEntries keeps some chunks of the 2^31 indices free, for entries that are never
// refused.
const maxEntries = 1<<31 - 64*chunkLen

// IsFull reports whether to stop adding entries. Alloc panics only some entries later.
func (a *Arena) IsFull() bool { return a.used >= maxEntries }

// Len returns the number of living entries. O(1).
func (a *Arena) Len() int { return a.used }

// Cap returns the number of entries that fit without another chunk, including those in
// use. O(1).
func (a *Arena) Cap() int { return a.places }

// Vacancy returns how many of Cap are free. It counts index 0 as free, although that is
// never used. O(1).
func (a *Arena) Vacancy() int { return a.Cap() - a.used }

// All iterates over the living entries of all buckets, in no order. The loop's body may
// unlink and free the entry that was yielded; it must not change the arena otherwise.
// O(capacity).
func (a *Arena) All() iter.Seq[Index] {
	return func(yield func(Index) bool) {
		for c := range a.chunks {
			for i := range a.Chunk(c) {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// Chunks returns the number of chunks, including those that were given back.
func (a *Arena) Chunks() int { return len(a.chunks) }

// Chunk iterates over the living entries of one chunk, as All does for all chunks. A pass
// over all chunks can be interrupted: an entry stays in its chunk, or Tidy moves it to a
// chunk with a lower number.
func (a *Arena) Chunk(c int) iter.Seq[Index] {
	return func(yield func(Index) bool) {
		chunk := a.entries(c)
		for j := range chunk {
			if chunk[j].generation != 0 && !yield(Index(c)<<chunkBits+Index(j)) {
				return
			}
		}
	}
}

// take takes an entry that is free, if there is no spare one.
func (a *Arena) take() Index {
	if len(a.open) == 0 {
		a.freeRemoved()
	}
	if len(a.open) == 0 {
		a.grow()
	}
	return a.takeFrom(a.open[len(a.open)-1])
}

// takeFrom removes an entry from the free list of an open chunk.
func (a *Arena) takeFrom(c uint32) Index {
	info := &a.info[c]
	i := info.free
	info.free = a.entry(i).next
	info.used++
	if info.free == 0 {
		a.closeChunk(c)
	}
	return i
}

// put returns an entry to the free list of its chunk.
func (a *Arena) put(i Index) {
	c := uint32(i >> chunkBits)
	info := &a.info[c]
	if info.free == 0 {
		a.openChunk(c)
	}
	e := a.entry(i)
	e.next, e.prev = info.free, 0
	info.free = i
	info.used--
	if info.used == 0 && a.Vacancy() >= 2*chunkLen {
		a.giveBack(c)
	}
}

func (a *Arena) openChunk(c uint32) {
	a.info[c].pos = uint32(len(a.open))
	a.open = append(a.open, c)
}

func (a *Arena) closeChunk(c uint32) {
	pos, last := a.info[c].pos, len(a.open)-1
	moved := a.open[last]
	a.open[pos] = moved
	a.info[moved].pos = pos
	a.open = a.open[:last]
}

// grow makes room for new entries. If a chunk is being emptied, grow lets new entries
// into it again. Otherwise it enlarges the first chunk, or makes another.
func (a *Arena) grow() {
	switch {
	case a.tidy.stop(a):
		a.tidy.active = false
	case a.generation == 0:
		a.extend(a.newNumber(), firstLen)
	case a.places < chunkLen && a.places > 0:
		a.extend(0, 4*a.places)
	default:
		a.extend(a.newNumber(), chunkLen)
	}
}

// newNumber returns the number of a chunk to be made: a vacant one, or a new one. Vacant
// numbers that were trimmed off are dropped.
func (a *Arena) newNumber() uint32 {
	for last := len(a.vacant) - 1; last >= 0; last-- {
		v := a.vacant[last]
		a.vacant = a.vacant[:last]
		if int(v) < len(a.chunks) {
			return v
		}
	}
	c := uint32(len(a.chunks))
	if c >= uint32(isBucket>>chunkBits) {
		panic("bucket: more than 2^31 entries in an arena")
	}
	a.chunks = append(a.chunks, nil)
	a.info = append(a.info, chunkInfo{})
	return c
}

// extend makes a chunk that has no free entry longer. A chunk that is not there has the length 0.
func (a *Arena) extend(c uint32, n int) {
	old := a.entries(int(c))
	chunk := make([]entry, n)
	copy(chunk, old)
	base := Index(c) << chunkBits
	for j := len(old); j < n-1; j++ {
		chunk[j].next = base + Index(j) + 1
	}
	a.chunks[c] = &chunk[0]
	a.places += n - len(old)
	a.info[c].free = max(base+Index(len(old)), 1) // index 0 is no entry
	a.openChunk(c)
}

func (a *Arena) giveBack(c uint32) {
	if a.tidy.isSource(c) {
		a.tidy.emptying = false
	} else {
		a.closeChunk(c)
	}
	a.chunks[c] = nil
	a.info[c] = chunkInfo{}
	a.places -= chunkLen
	a.vacant = append(a.vacant, c)
	a.trim()
}

// trim takes the numbers that no chunk has off the end, and makes the lists anew when
// they have become much too large.
func (a *Arena) trim() {
	n := len(a.chunks)
	for n > 0 && a.chunks[n-1] == nil {
		n--
	}
	a.chunks, a.info = a.chunks[:n], a.info[:n]
	if cap(a.chunks) > 4*max(n, 64) {
		a.chunks, a.info, a.open = slices.Clone(a.chunks), slices.Clone(a.info), slices.Clone(a.open)
		a.vacant = slices.DeleteFunc(slices.Clone(a.vacant), func(c uint32) bool { return int(c) >= n })
	}
}
