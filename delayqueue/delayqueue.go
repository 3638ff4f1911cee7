// Package delayqueue provides an unbounded blocking queue whose elements can be
// taken once their time has come, in the manner of the JDK's DelayQueue.
//
// # How it works
//
// Elements wait in a min-heap by time, and consumers in the order in which they came. A
// consumer is a function. The queue has one alarm, a timer whose function takes the
// earliest element and calls the first consumer with it. So one expiry wakes one
// goroutine, however many wait.
//
// The invariant: while an element waits and a consumer waits, the alarm is set to the
// time of the earliest element or to an earlier one, or its function is about to run. An
// alarm that rings too early is set anew. (An alarm for a time that the clock never reaches
// is not set: see DelayQueue.end.)
package delayqueue

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/internal/heap"
)

// DelayQueue is an unbounded queue of elements that each become available at a
// time of their own, the earliest first and, for equal times, in the order in
// which they were offered. It is safe for any number of producers and consumers.
// Make one with [New], [NewSince] or [NewPrecise]; the zero value is not usable.
//
// The queue measures times from the moment at which it was made. It uses the monotonic
// clock if the given time has a reading of it, as all times do that derive from time.Now.
// So a step of the wall clock moves nothing. Distances of more than 292 years saturate.
//
// A queue belongs to the place where it was made: in a bubble of testing/synctest, or outside of all
// bubbles. In the other place Take panics, and all that reads the clock or sets or
// stops the alarm. (TakeFunc and Poll need no clock on an empty queue, and for an element whose
// time is known to have come.)
type DelayQueue[T comparable] struct {
	start time.Time
	clock clock

	mu        sync.Mutex
	heap      *heap.Heap[T] // guarded by mu
	consumers []consumer[T] // the first to come first; guarded by mu
	tickets   uint64        // that were given out; guarded by mu
	timer     *time.Timer   // calls onAlarm; nil until first needed; guarded by mu
	spare     *time.Timer   // takes turns with timer: see startTimer; it is stopped; guarded by mu
	alarm     time.Duration // for when onAlarm is to be called; noAlarm: it is not; guarded by mu
	onAlarm   func()        // rings the queue that is in rings
	timerfd   *timerfd      // of a queue of NewPrecise; guarded by mu
	wakeups   int64         // guarded by mu
	seen      time.Duration // what the clock said last, since the start; guarded by mu
	forward   time.Duration // by how much Forward has moved the clock; guarded by mu

	// rings has the queue while an alarm is set, and otherwise nil. It is all that the timer
	// refers to: the runtime keeps a timer that was stopped until a quarter of its timers
	// are such, and would keep the queue with it, and a wheel. Written with mu held.
	rings *atomic.Pointer[DelayQueue[T]]

	// end is where the clock stands still, since the start. In a bubble of testing/synctest
	// the clock ends in the year 2262. When all goroutines there are blocked, a timer for a
	// later time fires at that end, and it fires again as often as it is set. An alarm that
	// is set again and again would ring for ever. So the bubble would never find out that
	// it has deadlocked.
	end time.Duration
}

// noAlarm is no time of an element: see Offer.
const noAlarm = time.Duration(math.MinInt64)

// consumer is one who waits for an element. It is called with it, once.
type consumer[T any] struct {
	take   func(v T)
	ticket uint64 // tells it from the others
}

// New returns an empty queue. It starts no goroutine.
func New[T comparable]() *DelayQueue[T] { return NewSince[T](time.Now()) }

// NewSince returns an empty queue that measures times from start, a reading of time.Now
// that was taken earlier. A queue that is made in a bubble of testing/synctest, from a
// reading outside of it, keeps the time outside.
//
// For a clock of your own, pass the start of that clock, and take elements with Peek and
// DropHead, since the queue does not know that clock.
func NewSince[T comparable](start time.Time) *DelayQueue[T] {
	end := time.Duration(math.MaxInt64 - start.UnixNano())
	q := &DelayQueue[T]{start: start, clock: newClock(start), heap: heap.New[T](), alarm: noAlarm, end: end}
	rings := new(atomic.Pointer[DelayQueue[T]])
	q.rings, q.onAlarm = rings, func() {
		q := rings.Load()
		if q == nil {
			return
		}
		if v, take := q.takeForFirst(); take != nil { // or else the queue has changed since the alarm was set
			take(v)
		}
	}
	return q
}

// NewPrecise returns an empty queue that wakes its consumers on time: some microseconds
// late, where the timers of an idle process are late by up to a millisecond and, after a
// long sleep, by up to 0.1 % of it. That takes a file descriptor, which [DelayQueue.Close]
// gives back, or the garbage collector once the queue is forgotten. It needs Linux. On other
// systems, and if the system refuses the descriptor, the queue is like one of [New].
// [DelayQueue.Precise] tells which it is, from the start.
func NewPrecise[T comparable]() *DelayQueue[T] {
	q := New[T]()
	q.timerfd, _ = newTimerfd()
	return q
}

// Offer adds v, which can be taken at or after the time at. A time in the past means now.
// The same element may be offered several times, and is then taken as often.
//
// Offer never blocks for long. It costs O(log n). If v is the new head, it sets the alarm
// for the consumer that waits. It allocates nothing while the length varies by less than
// 1024.
func (q *DelayQueue[T]) Offer(v T, at time.Time) {
	due := max(at.Sub(q.start), noAlarm+1)
	q.mu.Lock() // without a defer, for a small stack frame: nothing here can panic
	_, head, ok := q.heap.Peek()
	q.heap.Push(v, due)
	if !ok || due < head {
		q.unlockNewHead()
		return
	}
	q.mu.Unlock()
}

func (q *DelayQueue[T]) unlockNewHead() {
	defer q.mu.Unlock()
	q.setAlarm()
}

// Take waits until there is an element whose time has come, removes the earliest and
// returns it. If ctx has ended, Take takes nothing and returns ctx.Err(). If ctx ends
// while Take removes an element, Take may return the element. A call that finds an
// element due takes it at once, before the calls that wait. O(log n), and for one that
// gives up O(consumers).
func (q *DelayQueue[T]) Take(ctx context.Context) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	q.clock.now() // before there is a channel: one of a bubble, in the line of a queue that is not
	taken := make(chan T, 1)
	v, ticket := q.takeOrWait(func(v T) { taken <- v })
	if ticket == 0 {
		return v, nil
	}
	select {
	case v = <-taken:
	case <-ctx.Done():
		if q.leave(ticket) {
			return v, ctx.Err()
		}
		v = <-taken
	}
	return v, nil
}

// TakeFunc is Take for a consumer that has no goroutine while it waits. If there is an
// element whose time has come, TakeFunc removes the earliest, returns it and true, and
// never calls f. Otherwise it returns false at once. The queue then calls f once, on a
// goroutine of its own, with the first element that can be taken.
//
// So a wake-up costs what one of time.AfterFunc does: a timer and a goroutine. The consumer
// holds its place in the line like one inside Take, and cannot give it up. O(log n).
func (q *DelayQueue[T]) TakeFunc(f func(v T)) (v T, ok bool) {
	v, ticket := q.takeOrWait(f)
	return v, ticket == 0
}

// takeOrWait takes the earliest element if its time has come, and returns ticket 0, which is
// none. Else take is put in line.
func (q *DelayQueue[T]) takeOrWait(take func(v T)) (v T, ticket uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if v, ok := q.poll(); ok {
		return v, 0
	}
	q.tickets++
	q.consumers = append(q.consumers, consumer[T]{take, q.tickets})
	q.setAlarm()
	return v, q.tickets
}

// leave takes a consumer out of the line, and reports false if it has left already, with
// an element.
func (q *DelayQueue[T]) leave(ticket uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.consumers, func(c consumer[T]) bool { return c.ticket == ticket })
	if i < 0 {
		return false
	}
	q.consumers = slices.Delete(q.consumers, i, i+1)
	q.wakeups++
	if len(q.consumers) == 0 {
		q.stopAlarm()
	}
	return true
}

// setAlarm sets the alarm to the time of the earliest element, if a consumer waits. If
// that has come, the alarm rings at once. It is called with the lock held.
func (q *DelayQueue[T]) setAlarm() {
	_, at, ok := q.heap.Peek()
	if !ok || len(q.consumers) == 0 || at == q.alarm || at > q.end {
		return
	}
	now := q.clock.now() + q.forward // also if at is known to have come, for the panic
	q.rings.Store(q)
	if d := max(at, now) - now; d > 0 {
		q.startTimer(d)
		q.timerfd.endPoll(d)
	} else {
		if q.timer != nil {
			q.timer.Stop()
		}
		go q.onAlarm() // sooner than a timer, and cheaper
	}
	q.alarm = at
}

// startTimer sets the timer. If it is set already, it stops it, and sets the other one.
//
// Reset alone would do, but costs wake-ups. When a timer is reset to a later time, the runtime may still
// wake up at the earlier one, to find out that nothing is due. A timer that was stopped it drops
// when the processor that has it becomes idle. In a process that does nothing else, a timeout that is canceled at
// once took 470 us of processor time with Reset, 239 with two timers, and 199 with package time; the loop alone
// takes 120 (medians of 7 by turns).
func (q *DelayQueue[T]) startTimer(d time.Duration) {
	if q.alarm != noAlarm && q.timer != nil {
		q.timer.Stop()
		q.timer, q.spare = q.spare, q.timer
	}
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.onAlarm)
		return
	}
	q.timer.Reset(d)
}

func (q *DelayQueue[T]) stopAlarm() {
	if q.timer != nil {
		q.clock.now() // for the panic
		q.timer.Stop()
	}
	q.clearAlarm()
}

func (q *DelayQueue[T]) clearAlarm() {
	q.alarm = noAlarm
	q.rings.Store(nil)
}

// takeForFirst takes the element for which the alarm rings, and the first consumer out of
// the line. It returns a nil function if there is none of either.
func (q *DelayQueue[T]) takeForFirst() (v T, take func(v T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeups++
	q.clearAlarm()
	if len(q.consumers) == 0 {
		return v, nil
	}
	v, ok := q.poll()
	if ok {
		take = q.consumers[0].take
		q.consumers = slices.Delete(q.consumers, 0, 1)
	}
	q.setAlarm()
	return v, take
}

// Poll removes the earliest element and returns it if its time has come, and
// otherwise returns false at once. O(log n).
func (q *DelayQueue[T]) Poll() (T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.poll()
}

func (q *DelayQueue[T]) poll() (v T, ok bool) {
	if _, at, ok := q.heap.Peek(); !ok || q.until(at) > 0 {
		return v, false
	}
	v, _, ok = q.heap.Pop()
	return v, ok
}

// until returns how long it takes until a time comes, and zero if it has come. It reads the
// clock only if what the clock said last leaves that open.
func (q *DelayQueue[T]) until(at time.Duration) time.Duration {
	if at > q.seen {
		q.seen = q.clock.now() + q.forward
	}
	return max(at, q.seen) - q.seen // not max(0, at-q.seen), which may overflow
}

// Forward moves the queue's clock forward by d, as if that time had passed at this
// moment. It is for time that the monotonic clock does not count, such as that of a
// suspended machine. All elements, present and later, come due earlier by d. A d that is
// not positive does nothing. All calls together move the clock by at most 73 years. O(1).
func (q *DelayQueue[T]) Forward(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	const most = 1 << 61 // more could overflow
	if d = min(d, most-q.forward); d <= 0 {
		return
	}
	q.forward += d
	q.alarm = noAlarm // what it is set to comes earlier now
	q.setAlarm()
}

// Peek returns the earliest element and its time, whether or not that has come. On an
// empty queue ok is false. O(1).
func (q *DelayQueue[T]) Peek() (v T, at time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v, due, ok := q.heap.Peek()
	if !ok {
		return v, at, false
	}
	return v, q.start.Add(due), true
}

// DropHead removes v if v is the head, which Peek would return, and reports whether it
// did. It wakes no consumer, and sets the alarm to the time of the new head. If the queue is
// now empty, DropHead clears the alarm, so that no timer holds the queue. O(log n).
//
// The queue has no removal from the middle, which costs a heap O(n). Leave the element in
// place, and drop it when it has become the head.
func (q *DelayQueue[T]) DropHead(v T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	head, _, ok := q.heap.Peek()
	if !ok || head != v {
		return false
	}
	q.heap.Pop()
	if q.heap.Len() == 0 {
		q.stopAlarm()
	} else {
		q.setAlarm()
	}
	return true
}

// Len returns the number of elements, due or not. O(1).
func (q *DelayQueue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.heap.Len()
}

// Waits reports whether a consumer waits, in Take or by TakeFunc. O(1).
func (q *DelayQueue[T]) Waits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.consumers) > 0
}

// Wakeups returns the number of times that the alarm rang or that a call of Take gave up
// because its context ended. O(1).
func (q *DelayQueue[T]) Wakeups() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.wakeups
}

// Precise reports whether the queue wakes its consumers on time. It does if [NewPrecise] has
// made it, unless the system has no such descriptor, refused it, or Close was called.
func (q *DelayQueue[T]) Precise() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.timerfd.works()
}

// Close gives back the descriptor of a queue made by [NewPrecise], and does nothing else.
// The queue then works like one of [New]; calls of Take that wait go on waiting. Close
// may be called any number of times.
func (q *DelayQueue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timerfd.close()
}
