package bucket

import (
	"iter"
	"math"
)

const (
	chunkBits = 10
	chunkLen  = 1 << chunkBits
	chunkMask = chunkLen - 1
)

// Index is the place of an entry in its arena. Zero is no entry.
type Index uint32

// entry is 32 bytes, two to a cache line, so that a chunk is four pages to the
// byte. A free entry has generation 0 and nil task, and next is the next free
// entry of its chunk. The root of a ring has generation 0 too: no handle can
// name it. The lowest 8 bits of a generation are the entry's tag.
//
// The task's pointer lies among the plain words rather than in an array of its
// own. Separate arrays were measured: a collection with 5 M entries took the
// same time (17 ms each), and every add and fire one cache line more.
type entry struct {
	task       func()
	deadline   int64
	generation uint64
	next, prev Index
}

// Arena holds entries, 32 bytes each, in chunks of 1024 that never move. It is
// not safe for concurrent use. The zero value is empty and ready.
//
// A chunk whose entries are all free is given back to the garbage collector when
// another chunk's worth of entries is free besides, so what an emptied arena
// holds is two chunks (64 KB). Between full and empty the bound is the
// high-water mark: one entry that is left pins its chunk.
type Arena struct {
	chunks     []*[chunkLen]entry // nil: given back
	info       []chunkInfo        // of the chunk of the same number
	open       []uint32           // numbers of the chunks with a free entry, the next to use last
	vacant     []uint32           // numbers of the chunks given back
	generation uint64             // of the last Alloc, without its tag
	used       int                // entries and roots
	roots      int
}

// Tag is a byte that an entry has for the arena's user; it means nothing here.
type Tag uint8

// tagBits is the part of a generation that is the tag, and takes no part in telling
// entries apart. The other 56 bits count: at a hundred million entries a second, for
// 22 years.
const tagBits = 8

type chunkInfo struct {
	used int
	free Index // first of the chunk's free entries
	pos  int   // of the chunk in open, if it has a free entry
}

func (a *Arena) entry(i Index) *entry {
	return &a.chunks[i>>chunkBits][i&chunkMask]
}

// Alloc returns a new entry and its generation, which no other entry of this
// arena ever has. The entry is in no bucket. O(1) but for the making of a chunk;
// panics when 2^32 entries are in use.
func (a *Arena) Alloc(deadline int64, task func(), tag Tag) (Index, uint64) {
	i := a.take()
	a.generation += 1 << tagBits
	e := a.entry(i)
	e.deadline, e.generation, e.task = deadline, a.generation|uint64(tag), task
	return i, e.generation
}

// Free ends an entry, which must be in no bucket, and returns its task and its tag.
// Nothing of the task is kept. O(1).
func (a *Arena) Free(i Index) (task func(), tag Tag) {
	e := a.entry(i)
	task, tag = e.task, Tag(e.generation)
	e.task, e.generation = nil, 0
	a.put(i)
	return task, tag
}

// Alive reports whether the entry that Alloc returned with this generation has
// not been freed since, whatever its tag is now. Any index and generation may be
// asked for, those of another time included; generation 0 is never alive. O(1).
func (a *Arena) Alive(i Index, generation uint64) bool {
	c := int(i >> chunkBits)
	return generation != 0 && c < len(a.chunks) && a.chunks[c] != nil &&
		(a.entry(i).generation^generation)>>tagBits == 0
}

// Deadline returns the deadline of a living entry.
func (a *Arena) Deadline(i Index) int64 { return a.entry(i).deadline }

// SetDeadline changes the deadline of a living entry, which its bucket does not
// notice: unlink the entry first.
func (a *Arena) SetDeadline(i Index, deadline int64) { a.entry(i).deadline = deadline }

// Task returns the task of a living entry.
func (a *Arena) Task(i Index) func() { return a.entry(i).task }

// Tag returns the tag of a living entry.
func (a *Arena) Tag(i Index) Tag { return Tag(a.entry(i).generation) }

// SetTag changes the tag of a living entry. Its generation stays the one to ask for.
func (a *Arena) SetTag(i Index, tag Tag) {
	e := a.entry(i)
	e.generation = e.generation&^(1<<tagBits-1) | uint64(tag)
}

// Len returns the number of living entries. O(1).
func (a *Arena) Len() int { return a.used - a.roots }

// Cap returns how many entries there is room for without another chunk, those in use
// included. O(1).
func (a *Arena) Cap() int { return (len(a.chunks) - len(a.vacant)) * chunkLen }

// Vacancy returns how many of Cap are free. Index 0 counts as free, which it is not. O(1).
func (a *Arena) Vacancy() int { return a.Cap() - a.used }

// All iterates over the living entries, whichever buckets they are in, in no
// order. The entry that was yielded may be unlinked and freed before the next; else the
// arena must not change meanwhile. O(capacity).
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

// Chunks returns how many chunks there are, with those that were given back.
func (a *Arena) Chunks() int { return len(a.chunks) }

// Chunk iterates as All does over the living entries of one chunk, so that a pass over
// all of them can be interrupted: an entry stays in its chunk as long as it lives.
func (a *Arena) Chunk(c int) iter.Seq[Index] {
	return func(yield func(Index) bool) {
		chunk := a.chunks[c]
		if chunk == nil {
			return
		}
		for j := range chunk {
			if chunk[j].generation != 0 && !yield(Index(c)<<chunkBits+Index(j)) {
				return
			}
		}
	}
}

// take removes an entry from the free list of the last open chunk.
func (a *Arena) take() Index {
	if len(a.open) == 0 {
		a.grow()
	}
	c := a.open[len(a.open)-1]
	info := &a.info[c]
	i := info.free
	info.free = a.entry(i).next
	info.used++
	a.used++
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
	a.used--
	if info.used == 0 && a.Vacancy() >= 2*chunkLen {
		a.giveBack(c)
	}
}

func (a *Arena) openChunk(c uint32) {
	a.info[c].pos = len(a.open)
	a.open = append(a.open, c)
}

func (a *Arena) closeChunk(c uint32) {
	pos, last := a.info[c].pos, len(a.open)-1
	moved := a.open[last]
	a.open[pos] = moved
	a.info[moved].pos = pos
	a.open = a.open[:last]
}

// grow makes a chunk of free entries under a vacant number or a new one.
func (a *Arena) grow() {
	var c uint32
	if last := len(a.vacant) - 1; last >= 0 {
		c = a.vacant[last]
		a.vacant = a.vacant[:last]
	} else {
		c = uint32(len(a.chunks))
		if c > math.MaxUint32>>chunkBits {
			panic("bucket: more than 2^32 entries in an arena")
		}
		a.chunks = append(a.chunks, nil)
		a.info = append(a.info, chunkInfo{})
	}
	chunk := new([chunkLen]entry)
	base := Index(c) << chunkBits
	for j := range chunk[:chunkLen-1] {
		chunk[j].next = base + Index(j) + 1
	}
	a.chunks[c] = chunk
	first := base
	if first == 0 {
		first = 1 // index 0 is no entry
	}
	a.info[c] = chunkInfo{free: first}
	a.openChunk(c)
}

func (a *Arena) giveBack(c uint32) {
	a.closeChunk(c)
	a.chunks[c] = nil
	a.info[c] = chunkInfo{}
	a.vacant = append(a.vacant, c)
}
