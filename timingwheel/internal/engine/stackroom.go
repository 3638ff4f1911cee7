package engine

import (
	"sync/atomic"
	"unsafe"
)

// stackRoom gives the driver goroutine a larger stack at its beginning, if it needed one in its
// last lives.
//
// The goroutine is new at each wake-up, and begins with a stack of 2 KB. A function that resets
// its own Timer needs more, and so does nearly every function under Inline. The stack then grew
// below twenty frames, all of which the runtime corrects: 30,000 of the 40,000 instructions of a
// wake-up. At the beginning of the life, there are three frames, and it takes 4,000.
//
// It becomes one of 8 KB, which takes 50 ns more than one of 4 KB. A function that needs more than
// 4 KB saves 1,000 ns by that. Those of durable's workers need more, and took 9 % of their
// process's time to grow.
//
// If no function needs more than 2 KB, the stack stays as it is. In a program whose goroutines
// have large stacks on average, the runtime begins with a larger one, and nothing is left to do
// here.
type stackRoom struct{ score atomic.Int32 }

// A life whose stack has grown adds grown to the score, and one whose stack has not grown
// sets it to zero. So after two such lives in a row the score is greater than grown. Then each life
// begins with a larger stack and takes one away, until the score is grown again.
const grown = 32

// position returns the address of a variable on the stack. It changes when the stack grows.
func position(on *byte) uintptr { return uintptr(unsafe.Pointer(on)) }

// prepare is called at the beginning of a life. If it returns true, the caller calls note at the
// end.
func (r *stackRoom) prepare() (measure bool) {
	score := r.score.Load()
	if score <= grown {
		return true
	}
	r.score.Store(score - 1)
	growStack()
	return false
}

// note is told whether the stack has grown. Two lives at the same time may overwrite each other's
// score, which does no harm.
func (r *stackRoom) note(grew bool) {
	switch score := r.score.Load(); {
	case grew:
		r.score.Store(score + grown)
	case score != 0:
		r.score.Store(0)
	}
}

// growStack needs so large a frame that a stack of 2 KB becomes one of 8 KB.
//
//go:noinline
func growStack() {
	var frame [5000]byte
	touch(&frame)
}

// touch keeps the compiler from dropping the frame.
//
//go:noinline
func touch(*[5000]byte) {}
