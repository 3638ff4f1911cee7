// Package purgatory parks operations until a condition holds or a deadline comes.
//
// An operation waits for something that other goroutines bring about: data past an
// offset, acknowledgements of a quorum, the answer to a request. It waits under keys,
// which name the possible causes, and gives up at a deadline, which a timing wheel keeps.
// Millions may be parked: each takes 220 to 260 bytes and no goroutine.
//
// A long poll is a line on each side. The reader waits:
//
//	err := p.Wait(r.Context(), 30*time.Second, func() bool { return log.End() > offset }, topic)
//
// and the writer appends, and then says so:
//
//	log.Append(message)
//	p.Notify(topic)
//
// [Purgatory.Wait] blocks its goroutine. [Purgatory.Park] does not: it calls a function
// when the operation has ended. A [Threshold] is for many waiters for one number that
// rises. [Purgatory.NotifyN] is for an event that satisfies only some waiters, such as an
// item in a queue.
//
// # Rules
//
// Three functions take part: try is the condition, done receives the outcome, and the
// third changes the state. These are the rules for them:
//
//   - Change the state first, then call Notify with each key of the operations that the
//     change may satisfy.
//   - Call Notify with no lock held that a try or a done takes.
//   - A try has no side effects, and synchronizes what it reads: it runs on any
//     goroutine. It never overlaps itself. It may return true although the operation has
//     ended in another way at the same moment. Put an action that must happen once into
//     done.
//   - A try must not notify its own operation: that would call try again, for ever.
//
// Then no event is lost, whatever runs at the same time. Done is called exactly once. An
// operation that has ended is kept under no key. No lock is held while a try or a done
// runs, so either may call any method.
//
// # From sync.Cond
//
// A condition variable that has a deadline, a context, and a key for each condition:
//
//	c.L.Lock()                    for {
//	for len(queue) == 0 {             err := p.Wait(ctx, d, notEmpty, "queue")
//	    c.Wait()                      if err != nil { return err }
//	}                                 mu.Lock()
//	take()                            if len(queue) > 0 { take(); mu.Unlock(); return nil }
//	c.L.Unlock()                      mu.Unlock()
//	                              }
//
//	c.Signal()                    p.NotifyN("queue", 1)
//	c.Broadcast()                 p.Notify("queue")
//
// These are the differences:
//
//   - The lock is not held when Wait returns. So check the condition again under the
//     lock, and wait again if another goroutine was first. A reader that takes nothing
//     need not check.
//   - NotEmpty locks and unlocks by itself, and runs on the goroutine that notifies. So
//     notify after Unlock, where Signal may also be called before.
//   - Signal wakes the first waiter, whether it can go on or not. NotifyN wakes only
//     waiters whose condition holds. So several conditions on one state need no
//     Broadcast.
//   - No event is lost between the check and the wait, although no lock is held around
//     both.
//
// # Where done is called
//
// Done is called by the goroutine that has ended the operation: of Notify, CancelKey,
// Cancel, Check, Close or Park. After the deadline it is called by the wheel's executor,
// and after the wheel's Stop by a goroutine of the wheel's, in both cases under the
// wheel's panic handler. If the operation ends while Park still runs, for example while
// it calls try for the second time, Park calls done. An executor that drops functions, such
// as a full pool of pool.Discard, may drop a done that is due to the deadline: then it is
// not called. (A Wait does not depend on the executor.)
//
// A call may end many operations, and a done among them may panic or end the goroutine
// (runtime.Goexit). Then other goroutines end the rest, and the call waits for them. A try
// or a done that takes long delays the operations after it in the same call, a Wait
// included: start a goroutine for work that blocks.
//
// A done may end another operation, whose done then runs inside the first. Such calls
// nest about 64 frames deep. Deeper calls are queued. The call at that depth makes them
// after its own done has returned. So a queued done runs after the method that ended its
// operation has returned, and before the outermost method returns. If two goroutines are
// that deep at the same time, one may make the calls that the other has queued.
//
// # The end of the wheel
//
// The wheel's Stop ends all parked operations with [Closed], so that no waiter hangs. Its
// Shutdown waits for parked operations, as it does for pending functions: until each has
// been satisfied, or its deadline has come. A done that another call, such as Notify, makes may still
// run then. Call Close first to end them at once.
//
// A parked operation counts toward timingwheel.WithMaxPending.
//
// # How it works
//
// The outcome is set by one compare-and-swap; the first wins. Keys are spread over 64
// stripes with a lock each. The operations under a key form a ring, so parking and ending
// cost O(1) for each key. A goroutine takes a flag before it calls try. If the flag is
// taken, it leaves a mark instead, and the goroutine that drops the flag calls try again
// for the mark. No goroutine waits for another's try.
//
// It is the request purgatory of Apache Kafka, without faults that it has had: a
// completion lost where two attempts met, deadlocks with locks held around foreign code,
// a stack that overflowed, and completed operations kept under their other keys until a
// reaper came.
//
// Read the files in this order: core.go (how an operation ends), op.go (how its try is
// called), ring.go and stripe.go (where it waits), visit.go (Notify's walk),
// purgatory.go; then trampoline.go and all.go (a user's functions do no harm), threshold.go and
// treap.go.
//
// # Invariants
//
//  1. The outcome is set once.
//  2. An operation has an outcome, and a bit that says that Park has registered it in
//     full. The goroutine that sets the second of the two finishes the operation: it
//     takes it off the wheel and out of its keys, and calls done.
//  3. The flag is held from the beginning of Park through its second call of try. It is
//     dropped only when there is no mark.
//  4. If a Notify had the lock of the key's stripe before the operation was linked there,
//     the second call of try sees the change. If it has the lock afterwards, it calls try
//     or leaves a mark.
//  5. One lock at a time is held, and none while a user's function runs.
//  6. A key leaves its map together with its last operation.
//  7. At any quiet moment Parked = Satisfied + Expired + Canceled + Closed + Pending.
package purgatory
