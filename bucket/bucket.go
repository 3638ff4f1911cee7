// Package bucket stores the pending tasks of timing wheels. An [Arena] holds entries,
// which are addressed by index and recycled through free lists. A [Bucket] is a ring of
// entries in the arena, with the time at which it expires.
//
// It is plain data: no lock, no clock, no goroutine. Package timingwheel puts one
// lock around an arena and all the buckets that thread through it. Times are
// whole numbers in a unit that the caller chooses.
//
// The package is exported so that it can be read. It makes no promise of
// compatibility.
//
// # Rings
//
// The entries of an open bucket and the bucket itself form a ring
//
//	bucket -> first -> ... -> last -> bucket
//
// in both directions. So an entry is unlinked through its neighbors alone,
// whichever ring it is in. No place says which ring holds an entry.
//
// A bucket has a number in the arena, which stands for it in the links of its first and
// last entry. If the root of a ring were an entry of the arena, a link would need no test
// for which of the two it names. But the roots of emptied buckets, which stay open until
// they expire, kept chunks of the arena in memory: 47 MB with 65536 slots.
package bucket

import (
	"iter"

	"github.com/tickwheel/tickwheel/internal/nocopy"
)

// Bucket is a ring of entries of one arena, in the order in which they were
// appended, and the time at which it expires. The zero value is closed: it has
// no expiration and no entries.
//
// Every method must be given the same arena for the life of the bucket. The arena refers
// to the bucket after its first Open, so the bucket must not be copied.
type Bucket struct {
	_ nocopy.Mark

	expiration  int64
	first, last Index // self if there are no entries; 0: closed
	self        Index // the bucket's number in the arena; 0 until first opened
}

// Open gives a closed bucket its expiration and an empty ring. O(1).
func (b *Bucket) Open(a *Arena, expiration int64) {
	if b.self == 0 {
		b.self = a.enroll(b)
	}
	b.first, b.last = b.self, b.self
	b.expiration = expiration
}

// Close closes an open bucket, whose ring must be empty. O(1).
func (b *Bucket) Close(*Arena) { b.first, b.last, b.expiration = 0, 0, 0 }

// IsOpen reports whether the bucket has an expiration.
func (b *Bucket) IsOpen() bool { return b.first != 0 }

// Expiration returns the time at which an open bucket expires.
func (b *Bucket) Expiration() int64 { return b.expiration }

// Append puts an entry that is in no bucket at the end of an open bucket. O(1).
func (b *Bucket) Append(a *Arena, i Index) {
	e := a.entry(i)
	e.next, e.prev = b.self, b.last
	*a.next(b.last) = i
	b.last = i
}

// First returns the entry that has been in an open bucket the longest, or 0. O(1).
func (b *Bucket) First(a *Arena) Index {
	a.exposeRing()
	if b.first != b.self {
		return b.first
	}
	return 0
}

// TakeFirst removes the entry that has been in an open bucket the longest, and returns
// it, or 0 if the bucket is empty. It costs half of First and Unlink, since it knows one
// of the two neighbors. O(1).
func (b *Bucket) TakeFirst(a *Arena) Index {
	a.exposeRing()
	i := b.first
	if i == b.self {
		return 0
	}
	e := a.entry(i)
	b.first = e.next
	*a.prev(e.next) = b.self
	e.next, e.prev = 0, 0
	return i
}

// Unlink takes an entry out of its bucket. O(1).
func (a *Arena) Unlink(i Index) {
	e := a.entry(i)
	*a.next(e.prev) = e.next
	*a.prev(e.next) = e.prev
	e.next, e.prev = 0, 0
}

// MoveTo closes an open bucket and opens dst, which must be closed, with its
// expiration and its entries in their order. O(1).
func (b *Bucket) MoveTo(a *Arena, dst *Bucket) {
	dst.Open(a, b.expiration)
	if b.first != b.self {
		dst.first, dst.last = b.first, b.last
		a.entry(b.first).prev = dst.self
		a.entry(b.last).next = dst.self
	}
	b.Close(a)
}

// All iterates over the entries in their order; none for a closed bucket. The
// entry that was yielded may be unlinked and freed before the next.
func (b *Bucket) All(a *Arena) iter.Seq[Index] {
	return func(yield func(Index) bool) {
		if !b.IsOpen() {
			return
		}
		for i := a.living(b.first); i != b.self; {
			next := a.living(a.entry(i).next)
			if !yield(i) {
				return
			}
			i = next
		}
	}
}
