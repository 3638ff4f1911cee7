package bucket

import (
	"fmt"
	"iter"
)

// Verify returns an error that names the first invariant of the arena that does
// not hold, given all the buckets that thread through it. It is for tests, and
// costs a pass over everything.
func (a *Arena) Verify(buckets iter.Seq[*Bucket]) error {
	if err := a.verifyChunks(); err != nil {
		return err
	}
	where := map[Index]*Bucket{}
	roots := 0
	for b := range buckets {
		if !b.IsOpen() {
			continue
		}
		roots++
		if err := a.verifyRing(b, where); err != nil {
			return err
		}
	}
	living := 0
	for i := range a.All() {
		living++
		if where[i] == nil {
			return fmt.Errorf("entry %d lives in no bucket", i)
		}
	}
	if living != a.Len() || living != len(where) || roots != a.roots {
		return fmt.Errorf("%d living entries, %d in buckets, Len %d; %d open buckets, %d roots",
			living, len(where), a.Len(), roots, a.roots)
	}
	return nil
}

// verifyRing checks that the ring is closed in both directions, and that its
// entries live and are in no other ring, and notes them in where.
func (a *Arena) verifyRing(b *Bucket, where map[Index]*Bucket) error {
	if a.entry(b.root).generation != 0 {
		return fmt.Errorf("root %d has a generation", b.root)
	}
	for i := b.root; ; {
		next := a.entry(i).next
		if back := a.entry(next).prev; back != i {
			return fmt.Errorf("entry %d is followed by %d, which is preceded by %d", i, next, back)
		}
		if next == b.root {
			return nil
		}
		if a.entry(next).generation == 0 {
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
	used, vacant := 0, 0
	for c, chunk := range a.chunks {
		if chunk == nil {
			vacant++
			continue
		}
		info := a.info[c]
		free := 0
		for i := info.free; i != 0; i = a.entry(i).next {
			e := a.entry(i)
			if free++; int(i>>chunkBits) != c || free > chunkLen || e.generation != 0 || e.task != nil {
				return fmt.Errorf("chunk %d: free list broken at entry %d", c, i)
			}
		}
		usable := chunkLen
		if c == 0 {
			usable-- // index 0
		}
		if info.used != usable-free {
			return fmt.Errorf("chunk %d: used %d, usable %d, free %d", c, info.used, usable, free)
		}
		if listed := info.pos < len(a.open) && a.open[info.pos] == uint32(c); listed != (free > 0) {
			return fmt.Errorf("chunk %d: %d free, listed as open: %t", c, free, listed)
		}
		used += info.used
	}
	if used != a.used || vacant != len(a.vacant) {
		return fmt.Errorf("used %d, counted %d; %d vacant chunks, %d listed", a.used, used, vacant, len(a.vacant))
	}
	return nil
}
