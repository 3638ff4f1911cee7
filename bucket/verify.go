package bucket

import (
	"fmt"
	"iter"
	"slices"
)

// Verify returns an error that names the first invariant of the arena that does
// not hold, given all the buckets that thread through it. It is for tests, and
// costs a pass over everything.
func (a *Arena) Verify(buckets iter.Seq[*Bucket]) error {
	if err := a.verifyChunks(); err != nil {
		return err
	}
	if err := a.verifyRemoved(); err != nil {
		return err
	}
	where := map[Index]*Bucket{}
	for b := range buckets {
		if !b.IsOpen() {
			continue
		}
		if err := a.verifyRing(b, where); err != nil {
			return err
		}
	}
	for _, i := range a.removed.dead.list() {
		if where[i] == nil {
			return fmt.Errorf("entry %d was removed and is dead, but in no bucket", i)
		}
	}
	living, moved := 0, 0
	for i := range a.All() {
		living++
		if where[i] == nil {
			return fmt.Errorf("entry %d lives in no bucket", i)
		}
		if g := a.entry(i).generation; g&hasMoved != 0 {
			moved++
			if found, ok := a.Moved(g); !ok || found != i {
				return fmt.Errorf("entry %d has moved, and is found at %d (%t)", i, found, ok)
			}
		}
	}
	if living != a.Len() || living+a.removed.dead.n != len(where) || moved != a.tidy.numMoved() {
		return fmt.Errorf("%d living entries, %d in buckets, %d of them dead, Len %d; %d have moved, %d are listed",
			living, len(where), a.removed.dead.n, a.Len(), moved, a.tidy.numMoved())
	}
	return nil
}

func (t *tidy) numMoved() (n int) {
	if t.moved == nil {
		return 0
	}
	for i := range t.moved {
		n += t.moved[i].Len()
	}
	return n
}

// verifyRing checks that the ring is closed in both directions, and that its
// entries live and are in no other ring, and notes them in where.
func (a *Arena) verifyRing(b *Bucket, where map[Index]*Bucket) error {
	if number := int(b.self &^ isBucket); number >= len(a.buckets) || a.buckets[number].self != b.self {
		return fmt.Errorf("bucket %d is not enrolled", number)
	}
	for i := b.self; ; {
		next := *a.next(i)
		if back := *a.prev(next); back != i {
			return fmt.Errorf("%x is followed by %x, which is preceded by %x", i, next, back)
		}
		if next == b.self {
			return nil
		}
		if a.entry(next).generation == 0 && !a.removed.isDead(next) {
			return fmt.Errorf("entry %d is in a bucket, but does not live", next)
		}
		if where[next] != nil {
			return fmt.Errorf("entry %d is in two buckets, or twice in one", next)
		}
		where[next] = b
		i = next
	}
}

// verifyChunks checks the free lists, and what is counted and listed of them.
func (a *Arena) verifyChunks() error {
	used, places := 0, 0
	for c := range a.chunks {
		chunk := a.entries(c)
		if chunk == nil {
			continue
		}
		places += len(chunk)
		info := a.info[c]
		free := 0
		for i := info.free; i != 0; i = a.entry(i).next {
			e := a.entry(i)
			if free++; int(i>>chunkBits) != c || free > chunkLen || e.generation != 0 || e.task != nil {
				return fmt.Errorf("chunk %d: free list broken at entry %d", c, i)
			}
		}
		usable := len(chunk)
		if c == 0 {
			usable-- // index 0
		}
		if int(info.used) != usable-free {
			return fmt.Errorf("chunk %d: used %d, usable %d, free %d", c, info.used, usable, free)
		}
		if listed := int(info.pos) < len(a.open) && a.open[info.pos] == uint32(c); listed != (free > 0 && !a.tidy.isSource(uint32(c))) {
			return fmt.Errorf("chunk %d: %d free, listed as open: %t", c, free, listed)
		}
		used += int(info.used)
	}
	removed := a.removed.dead.n + a.removed.spare.n
	if used != a.used+removed || places != a.places {
		return fmt.Errorf("used %d and %d removed, counted %d; %d places, counted %d", a.used, removed, used, a.places, places)
	}
	return nil
}

// verifyRemoved checks that what was removed is listed once, and not free.
func (a *Arena) verifyRemoved() error {
	r := &a.removed
	if r.dead.n > deadBatch {
		return fmt.Errorf("%d entries are dead, at most %d may be", r.dead.n, deadBatch)
	}
	seen := map[Index]bool{}
	for _, i := range slices.Concat(r.dead.list(), r.spare.list()) {
		if e := a.entry(i); seen[i] || e.generation != 0 || e.task != nil {
			return fmt.Errorf("entry %d was removed, and lives, or was so twice", i)
		}
		seen[i] = true
	}
	for c, chunk := range a.chunks {
		for i := a.info[c].free; chunk != nil && i != 0; i = a.entry(i).next {
			if seen[i] {
				return fmt.Errorf("entry %d was removed, and is free", i)
			}
		}
	}
	return nil
}

func (r *removed) isDead(i Index) bool { return slices.Contains(r.dead.list(), i) }
