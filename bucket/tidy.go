package bucket

import "github.com/tickwheel/tickwheel/internal/shrinking"

// tidy moves entries together, so that chunks with few entries are emptied and given
// back.
//
// The chunk that is emptied, the source, comes from the end of the arena. Its entries go
// to the chunks from the beginning that have room, until the two meet (two fingers, as in
// Edwards's compacting collector). So an entry never moves to a chunk of a higher number.
//
// An entry can move because only its neighbors in the ring and its handles refer to it by
// its place. The neighbors are told. A handle that finds nothing in its place looks into
// a map, by its generation, which an entry keeps when it moves.
//
// The alternatives: one entry pins a smaller chunk as well, and smaller chunks cost the
// garbage collector more. To put new entries into the fullest chunks helps only if the
// others become empty by themselves, which a chunk with a timeout of an hour does not. To
// address all entries through a table costs each operation a cache line.
type tidy struct {
	credit int // work that is allowed

	// moved is where entries are that have moved, by their generation without the tag; nil if
	// none ever has. It is many small maps, so that none takes long to be made anew.
	moved *[movedParts]shrinking.Map[uint64, Index]

	active   bool   // a pass is under way
	emptying bool   // source is being emptied: it is not in open, so that it gets no new entries
	source   uint32 // no chunk from here on is still to be emptied, but source itself if emptying
	place    Index  // the next entry of source to look at, if emptying
	target   uint32 // no chunk below has room
}

const (
	// tidyBatch is the least credit for which Tidy does anything. Then it looks at 8
	// entries for each unit of credit, or moves an entry for 4 units.
	tidyBatch = 64
	looks     = 8
	moveLooks = 32 // what a move costs: 100 to 300 ns

	movedParts = 64
)

// IsSparse reports whether Tidy will move entries: there is room for more than 2.5 times
// the entries and two chunks. O(1).
func (a *Arena) IsSparse() bool { return 2*a.places > 5*a.used+4*chunkLen }

// Tidy moves entries together if the arena is sparse, so that entries that are left do
// not pin their chunks. The caller passes how many entries it has just handled; Tidy
// moves a small part of that number. If Tidy is called for each freed entry, the arena is
// no longer sparse after at most two thirds of its capacity was freed, and mostly after a
// third. If no entries are added meanwhile, that may be when none is left: of entries that
// were freed at random until a tenth was left, there was room for seven times the rest.
//
// All entries must be in buckets. An Index from before the call may not be good any more:
// see [Arena.Find]. So Tidy must not be called in the middle of an iteration.
func (a *Arena) Tidy(work int) {
	t := &a.tidy
	a.freeRemoved()
	if t.credit += work; t.credit < tidyBatch {
		return
	}
	budget := looks * t.credit
	t.credit = 0
	if !t.active && a.IsSparse() {
		t.active, t.source, t.target = true, uint32(len(a.chunks)), 0
	}
	for budget > 0 && t.active {
		if t.emptying {
			budget -= t.step(a)
		} else {
			t.choose(a)
			budget--
		}
	}
}

// choose looks whether the next chunk is one to be emptied: at most half full.
func (t *tidy) choose(a *Arena) {
	if t.source <= t.target {
		t.active = false
		return
	}
	t.source--
	c := t.source
	if int(c) >= len(a.chunks) || a.chunks[c] == nil {
		return
	}
	if used := a.info[c].used; used > 0 && used <= chunkLen/2 {
		a.closeChunk(c)
		t.emptying, t.place = true, Index(c)<<chunkBits
	}
}

// step looks at an entry of the source, or at a target, and returns its cost in looks.
func (t *tidy) step(a *Arena) int {
	c, i := t.source, t.place
	if uint32(i>>chunkBits) != c { // its last entry was the one before
		t.stop(a)
		return 1
	}
	if a.entry(i).generation == 0 {
		t.place++
		return 1
	}
	switch to := t.target; {
	case to == c:
		t.stop(a)
		t.active = false
		return 1
	case a.chunks[to] == nil || a.info[to].free == 0:
		t.target++
		return 1
	}
	t.place++
	t.move(a, i)
	return moveLooks
}

// move moves an entry of the source to the target, which has room.
func (t *tidy) move(a *Arena, from Index) {
	to := a.takeFrom(t.target)
	e := a.entry(from)
	e.generation |= hasMoved
	*a.entry(to) = *e
	*a.next(e.prev) = to
	*a.prev(e.next) = to
	if t.moved == nil {
		t.moved = new([movedParts]shrinking.Map[uint64, Index])
	}
	t.part(e.generation).Set(e.generation>>tagBits, to)
	e.task, e.generation = nil, 0
	a.put(from)
}

// stop ends the emptying of the source, and reports whether there was one. The source has
// room, and may get new entries again.
func (t *tidy) stop(a *Arena) bool {
	if !t.emptying {
		return false
	}
	t.emptying = false
	a.openChunk(t.source)
	return true
}

func (t *tidy) isSource(c uint32) bool { return t.emptying && t.source == c }

// forget forgets where an entry is that has moved.
func (a *Arena) forget(e *entry) {
	a.tidy.part(e.generation).Delete(e.generation >> tagBits)
}

// part returns the map of a generation. Generations follow one another, so their lowest
// bits spread them.
func (t *tidy) part(generation uint64) *shrinking.Map[uint64, Index] {
	return &t.moved[generation>>tagBits%movedParts]
}
