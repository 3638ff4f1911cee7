// Package bucket is where pending tasks live: an [Arena] of entries addressed by
// index and recycled through free lists, and the [Bucket], a ring of entries
// threaded through the arena, with the time at which it expires.
//
// It is plain data: no lock, no clock, no goroutine. Package timingwheel puts one
// lock around an arena and all the buckets that thread through it. Times are
// whole numbers in a unit that the caller chooses.
//
// The package is exported so that it can be read; it carries no promise of
// compatibility.
//
// # Rings
//
// A bucket that is open has a root, an entry of the arena that holds no task,
// and
//
//	root -> first -> ... -> last -> root
//
// in both directions. So an entry is unlinked through its neighbours alone,
// whichever ring it is in (which ring holds an entry is nowhere written down),
// and a whole ring changes hands by handing over its root. A closed bucket has
// no root and costs its own 16 bytes.
package bucket

import "iter"

// Bucket is a ring of entries of one arena, in the order in which they were
// appended, and the time at which it expires. The zero value is closed: it has
// no expiration and no entries.
//
// Every method must be given the same arena for the life of the bucket.
type Bucket struct {
	expiration int64
	root       Index // 0: closed
}

// Open gives a closed bucket its expiration and an empty ring. O(1).
func (b *Bucket) Open(a *Arena, expiration int64) {
	b.root = a.take()
	a.roots++
	r := a.entry(b.root)
	r.next, r.prev = b.root, b.root
	b.expiration = expiration
}

// Close takes the expiration and the ring, which must be empty, away again. O(1).
func (b *Bucket) Close(a *Arena) {
	a.roots--
	a.put(b.root)
	*b = Bucket{}
}

// IsOpen reports whether the bucket has an expiration.
func (b *Bucket) IsOpen() bool { return b.root != 0 }

// Expiration returns the time at which an open bucket expires.
func (b *Bucket) Expiration() int64 { return b.expiration }

// Append puts an entry that is in no bucket at the end of an open bucket. O(1).
func (b *Bucket) Append(a *Arena, i Index) {
	r, e := a.entry(b.root), a.entry(i)
	e.next, e.prev = b.root, r.prev
	a.entry(r.prev).next = i
	r.prev = i
}

// First returns the entry that has been in an open bucket the longest, or 0. O(1).
func (b *Bucket) First(a *Arena) Index {
	if first := a.entry(b.root).next; first != b.root {
		return first
	}
	return 0
}

// Unlink takes an entry out of whichever bucket it is in. O(1).
func (a *Arena) Unlink(i Index) {
	e := a.entry(i)
	a.entry(e.prev).next = e.next
	a.entry(e.next).prev = e.prev
	e.next, e.prev = 0, 0
}

// MoveTo closes an open bucket and opens dst, which must be closed, with its
// expiration and its entries in their order. O(1).
func (b *Bucket) MoveTo(dst *Bucket) { *dst, *b = *b, Bucket{} }

// All iterates over the entries in their order; none for a closed bucket. The
// entry that was yielded may be unlinked and freed before the next.
func (b *Bucket) All(a *Arena) iter.Seq[Index] {
	return func(yield func(Index) bool) {
		if !b.IsOpen() {
			return
		}
		for i := a.entry(b.root).next; i != b.root; {
			next := a.entry(i).next
			if !yield(i) {
				return
			}
			i = next
		}
	}
}
