package engine

import (
	"container/list"
	"context"
	"math"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
)

// An heir gets the entries that stop takes off the engine. Expect comes first, with the largest
// number of them. It is called under the lock of a shard.
type heir interface {
	Expect(n int64)
	Take(deadline time.Time, f func())
}

// Stop lets nothing fire any more, and hands back what is pending.
func (e *Engine) Stop(h heir) {
	e.mustEndHere()
	e.cancel(ErrStopped)
	oneShots, contexts := e.stopShards()
	for _, of := range contexts {
		for elem := of.Front(); elem != nil; elem = elem.Next() {
			elem.Value.(context.CancelCauseFunc)(ErrStopped)
		}
	}
	// Release the buckets too, for those who keep a handle.
	for b, _, ok := e.driver.queue.Peek(); ok; b, _, ok = e.driver.queue.Peek() {
		e.driver.queue.DropHead(b)
	}
	e.driver.queue.Close()
	if boot := e.clock.boot; boot != nil {
		boot.stop()
	}
	e.driver.lateHint.next(math.MaxInt64)
	h.Expect(oneShots)
	for i := range e.shards {
		for chunk, more := 0, true; more; {
			chunk, more = e.shards[i].stopSlice(chunk, SliceLen, h)
		}
	}
	if a := e.driver.admission; a != nil {
		a.Leave(&e.driver)
	}
}

// stopShards lets nothing fire any more. It returns how many one-shots are pending, and
// the contexts of the Futures that run. These are for the caller to end, without a lock:
// contexts call what others have registered.
func (e *Engine) stopShards() (oneShots int64, contexts []*list.List) {
	e.batches.Lock()
	defer e.batches.Unlock()
	for i := range e.shards {
		n, c := e.shards[i].stop()
		oneShots += n
		if c != nil {
			contexts = append(contexts, c)
		}
	}
	return oneShots, contexts
}

// Drain makes the engine refuse what comes later. It waits until nothing is pending that
// is to run once, and nothing runs, and returns ctx.Err() if ctx ends first.
//
// A shard that is closed refuses a reset to a later time. The alternatives are worse. If
// the reset were done, one connection that is never idle would keep drain waiting for
// ever. If it were ignored and returned true, the function would run before the time
// that its caller was promised. A caller that gets false knows that the function comes
// sooner, and can stop it: callers do that anyway with a connection that closes.
func (e *Engine) Drain(ctx context.Context) error {
	e.mustEndHere()
	e.closeShards(ctx)
	if !e.runner.Ended.Until(ctx.Done(), e.isQuiet) {
		return ctx.Err()
	}
	return nil
}

// closeShards makes the shards refuse what comes later, all at once. Then it takes off
// them what nobody has to wait for. That may take long, with many channel timers and
// contexts. If ctx ends in the middle of many, another goroutine does the rest.
func (e *Engine) closeShards(ctx context.Context) {
	e.markClosed()
	i, chunk, within := 0, 0, false
	slice := func() (more bool) {
		if chunk, within = e.shards[i].closeSlice(chunk); !within {
			i, chunk = i+1, 0
		}
		return i < len(e.shards)
	}
	for slice() {
		if within && ctx.Err() != nil {
			go func() {
				for slice() {
				}
			}()
			return
		}
	}
}

func (e *Engine) markClosed() {
	e.batches.Lock()
	defer e.batches.Unlock()
	for i := range e.shards {
		e.shards[i].close()
	}
}

// isQuiet reports whether no task is pending or running, on a wheel that accepts no more.
// It looks at the pending tasks first and at the running ones next, because a task goes
// that way.
func (e *Engine) isQuiet() bool {
	for i := range e.shards {
		if e.shards[i].hasTasks() {
			return false
		}
	}
	return e.runner.Running.Load() == 0
}

// A shard ends in two steps. Once it is closed, it accepts no more, and holds only what is
// to run once. Once it is stopped, it fires no more, and soon holds nothing.
//
// Each step is a mark and a pass. The mark takes the lock for a moment, and has its effect
// at once. The pass goes over all entries, in slices, and gives way to others in between.
// Until the pass has come to an entry, the entry is pending as before: a cancel in between
// wins, and the pass finds it no more. Neither does a pass miss an entry. For a shard that
// is closed moves none (tidy), and gets no other that a pass is to find.

// close makes the shard refuse what comes later.
func (s *shard) close() {
	s.lock()
	defer s.unlock()
	s.closed = true
}

// closeSlice is a slice of the pass: it goes on with the chunk of the arena, and returns
// the one that is next, and false if there is none. It calls the wheel's own tasks for
// which nobody has to wait, and takes them off the wheel.
func (s *shard) closeSlice(chunk int) (next int, more bool) {
	s.lockLast()
	defer s.unlock()
	if chunk >= s.arena.Chunks() {
		return chunk, false
	}
	n := 0
	for i := range s.arena.Chunk(chunk) {
		s.settle(i) // a Reset to a later time is refused from now on
		if s.arena.Tag(i)&OneShot != 0 {
			continue
		}
		if n++; n > SliceLen {
			return chunk, true // those before are off, and the others are settled already
		}
		s.dismiss(i)
	}
	chunk++
	return chunk, chunk < s.arena.Chunks()
}

// dismiss takes an entry off the wheel that is not going to fire, because the shard is
// closed or stopped. If it is a task of the wheel's own, it is called. The caller holds
// s.mu.
func (s *shard) dismiss(i bucket.Index) {
	switch f, tag := s.arena.Task(i), s.arena.Tag(i); {
	case isInternal(tag):
		s.dismissing = true
		s.call(f, tag) // first: it may ask for its deadline
		s.dismissing = false
	case isLazy(tag):
		s.handBack(s.arena.Deadline(i), lazyOf(f).F)
	default:
		s.handBack(s.arena.Deadline(i), f)
	}
	s.counts.HandedBack++
	_, tag := s.arena.Remove(i)
	s.uncount(tag >> levelShift)
	s.uncountOneShot(tag)
}

// stop closes the shard, and lets nothing fire any more. It returns how many one-shots are
// pending, and the contexts that remember has noted.
func (s *shard) stop() (oneShots int64, contexts *list.List) {
	s.lock()
	defer s.unlock()
	if !s.stopped {
		s.closed, s.stopped = true, true
		// Nothing waits for the executor any more. The one that serves them does not
		// look for them here.
		s.hub.numWaiting.Add(-int64(s.entries[levelWaiting]))
		s.waitsSince.Store(math.MaxInt64)
	}
	contexts, s.contexts = s.contexts, nil
	return s.oneShots, contexts
}

// stopSlice is a slice of the pass: it goes on with the chunk of the arena, gives the heir
// what is to be handed back, and returns the chunk that is next, and false if there is
// none. The memory of a chunk is given back with the last of its entries.
func (s *shard) stopSlice(chunk, most int, h heir) (next int, more bool) {
	s.lockLast()
	defer s.unlock()
	if chunk >= s.arena.Chunks() {
		s.arena, s.finest, s.turnEnds = bucket.Arena{}, nil, 0 // it is empty: the pass has come to all
		if p := s.hub.profile; p != nil {
			p.forget(s)
		}
		return chunk, false
	}
	s.heir = h
	defer func() { s.heir = nil }()
	n := 0
	for i := range s.arena.Chunk(chunk) {
		if n++; n > most {
			return chunk, true
		}
		s.settle(i)
		s.dismiss(i)
	}
	return chunk + 1, true
}

// handBack is called with s.mu held, while the shard is being stopped.
func (s *shard) handBack(deadline int64, f func()) { s.heir.Take(s.clock.Time(deadline), f) }

// Fallback is a timer of package time that does a task of the wheel's own, because the wheel
// is stopped.
//
// Package time may keep the function of a stopped timer for as long as other timers are
// pending. So that function holds no more than the Fallback, and Stop empties it.
type Fallback struct {
	timer *time.Timer
	at    time.Time
	task  func() // nil once done or stopped; guarded by the shard's lock
}

// startFallback has package time call the task at the given time, with the lock of s held.
// The caller holds that lock.
func startFallback(s *shard, at time.Time, task func()) *Fallback {
	if s.clock.IsManual() {
		task() // its time has ended, and real time is another
		return nil
	}
	f := &Fallback{at: at, task: task}
	f.timer = time.AfterFunc(time.Until(at), func() {
		s.lock()
		defer s.unlock()
		if task := f.task; task != nil { // nil: stopped at the last moment
			f.task = nil
			task()
		}
	})
	return f
}

// Due returns the time of the task, and false if none is pending. A nil Fallback has
// none. The caller holds the shard's lock.
func (f *Fallback) Due() (time.Time, bool) {
	if f == nil || f.task == nil {
		return time.Time{}, false
	}
	return f.at, true
}

// Stop ends the Fallback and reports whether its task was pending. A nil Fallback has none. The
// caller holds the shard's lock.
func (f *Fallback) Stop() bool {
	if f == nil || f.task == nil {
		return false
	}
	f.timer.Stop()
	f.task = nil
	return true
}
