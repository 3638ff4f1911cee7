// Package bubble tells the clock of a testing/synctest bubble from the real one.
//
// A time that was read outside of all bubbles has two readings: one of the wall clock and one of
// the monotonic clock. A time that was read in a bubble has only the first. Two times are
// subtracted by the monotonic clock if both have it, and otherwise by the wall clock. So outside,
// time.Since(t) counts by one reading of t, and in a bubble by the other.
//
// Nothing follows from the date. A bubble begins in the year 2000, and can be moved to any
// later date, the present one included. So [Base] changes the reading of a time that is not
// used where it belongs: by that one it is ages away.
package bubble

import (
	"time"
	"unsafe"
)

// Off is 18 years. No program runs for so long, or next to none.
const Off time.Duration = 1 << 59

// Base returns a time to count from, for t, which time.Now has just returned. time.Since(Base(t))
// is time.Since(t) where t was read: outside of all bubbles, or in a bubble. In the other place
// it is negative, or at least Off. The same holds for now.Sub(Base(t)) if now was just read.
//
// The result is for nothing else: it does not have the date of t.
//
// Two bubbles cannot be told apart. Rejected: to call time.Now instead of time.Since, and to
// look at the readings. That costs 35 ns more, for each timer that is started.
func Base(t time.Time) time.Time {
	if !known {
		return t
	}
	if !IsTime(t) {
		wordsOf(&t).wall = hasMonotonic // the year 1885
		return t
	}
	t = outside.Add(t.Sub(outside)) // the same date, and with a monotonic reading
	if !IsTime(t) {                 // else it is after 2157: by the wall clock that is ages away
		wordsOf(&t).ext = never
	}
	return t
}

// IsTime reports whether t, which time.Now has returned, was read in a bubble.
func IsTime(t time.Time) bool { return t == t.Round(0) }

// Inside reports whether the caller is in a bubble. It costs a reading of the clock.
func Inside() bool { return IsTime(time.Now()) }

// words is what a time.Time begins with. Both are numbers.
type words struct {
	wall uint64 // with hasMonotonic: 33 bits of seconds since 1885, and 30 of nanoseconds
	ext  int64  // with hasMonotonic: nanoseconds since the process began
}

func wordsOf(t *time.Time) *words { return (*words)(unsafe.Pointer(t)) }

const (
	hasMonotonic = 1 << 63
	never        = 1 << 62 // 146 years after the process began
)

// outside is a time that was read in no bubble: the variables of a package are initialized
// outside.
var outside = time.Now()

// known says that a time.Time begins with these words. If another release of Go has changed that,
// a bubble is known only by a date that is before the present, or at least Off later.
var known = areWords()

// areWords reads the words, and does not write them: what it finds cannot be a pointer.
func areWords() bool {
	later := outside.Add(time.Second)
	if unsafe.Sizeof(outside) < unsafe.Sizeof(words{}) {
		return false
	}
	a, b := *wordsOf(&outside), *wordsOf(&later)
	return a.wall&hasMonotonic != 0 && a.wall&(1<<30-1) == uint64(outside.Nanosecond()) &&
		b.wall-a.wall == 1<<30 && b.ext-a.ext == int64(time.Second)
}
