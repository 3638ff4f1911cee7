// Package purgatory parks operations until a condition holds or a deadline comes.
//
// An operation waits for something that other goroutines bring about: data past an
// offset, acknowledgements of a quorum, the answer to a request. It waits under keys,
// which name what may bring it about, and gives up at a deadline, which a timing wheel
// keeps. Millions may be parked: each takes about 200 bytes, and none a goroutine.
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
// rises. [Purgatory.NotifyN] is for what is enough for some of those who wait, such as an
// item in a queue.
//
// # Rules
//
// There are three functions: try, which is the condition; done, which is told the
// outcome; and what changes the state. These are the rules for them:
//
//   - Change the state first, then call Notify, with each key of those whom it may
//     concern.
//   - Call Notify with no lock held that a try or a done takes.
//   - A try has no side effects, and synchronizes what it reads: it runs on any goroutine.
//     It never overlaps itself. It may return true, and the operation still have ended in
//     another way at the same moment: what is to be done once belongs into done.
//   - A try must not notify its own operation. It would be asked again, and so on for ever.
//
// Then no event is lost, whatever runs at the same time; done is called exactly once; and
// what has ended is kept nowhere, under no key. No lock is held while a try or a done
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
//   - The lock is not held when Wait returns. So look again under the lock, and wait again
//     if somebody else was first. If all that you do is read, you need not.
//   - NotEmpty locks and unlocks by itself, and runs on the goroutine that notifies. So
//     notify after Unlock, where Signal may also be called before.
//   - Signal wakes the first, whether it can go on or not. NotifyN passes over those whose
//     condition does not hold, and only those whose condition holds are woken. So with
//     several conditions at one state no Broadcast is needed.
//   - Nothing is lost between the question and the wait, though no lock is held around both.
//
// # Where done is called
//
// Done is called by the goroutine that has ended the operation: of Notify, CancelKey,
// Cancel, Check, Close or Park. After the deadline it is called by the wheel's executor,
// and after the wheel's Stop by a goroutine of the wheel's, in both cases under the
// wheel's panic handler.
//
// When one of many that a call ends panics or ends the goroutine (runtime.Goexit), the
// rest are ended by goroutines that the call waits for, since its own is on its way out.
//
// A done may end another operation, whose done then runs inside the first. Such calls
// nest 64 frames deep or so. Those beyond are queued, and called by the outermost that is
// this deep when its own done has returned: before the method that began it all returns,
// but after the one that has ended the operation. If two goroutines are that deep at the
// same time, the one may call what the other has queued.
//
// # The end of the wheel
//
// The wheel's Stop ends what is parked with [Closed], so that nobody hangs who waits. Its
// Shutdown waits for what is parked, as it does for pending functions: until each has
// been satisfied, or its deadline has come. To have them end at once, call Close first.
//
// A parked operation counts toward timingwheel.WithMaxPending.
//
// # How it works
//
// The outcome is set by one compare-and-swap; the first wins. Keys are spread over 64
// stripes with a lock each, and under a key the operations form a ring, so that to park
// and to end cost O(1) for each key. The question is asked under a flag; who finds it
// taken leaves a mark, and whoever drops the flag and finds a mark asks again. Nobody
// waits for somebody else's try.
//
// It is the request purgatory of Apache Kafka, without faults that it has had: a
// completion lost where two attempts met, deadlocks with locks held around foreign code,
// a stack that overflowed, and completed operations kept under their other keys until a
// reaper came.
//
// Read it in this order: core.go (how an operation ends), op.go (how it is asked),
// ring.go and stripe.go (where it waits), visit.go (Notify's walk), purgatory.go; then
// nest.go and all.go (a user's functions do no harm), threshold.go and treap.go.
//
// # Invariants
//
//  1. The outcome is set once.
//  2. An operation is finished (taken off the wheel and out of its keys, and done called)
//     by whoever sets the second of two: its outcome, and the bit that says that Park has
//     registered it in full.
//  3. The flag is held from the beginning of Park through its second question. Whoever
//     drops it found no mark.
//  4. A Notify had the lock of the key's stripe before the operation was linked there, and
//     then the second question sees the change; or after, and then it asks, or leaves a
//     mark.
//  5. One lock at a time is held, and none while a user's function runs.
//  6. A key leaves its map together with its last operation.
//  7. At any quiet moment Parked = Satisfied + Expired + Canceled + Closed + Pending.
package purgatory
