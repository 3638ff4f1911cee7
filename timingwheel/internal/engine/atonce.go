package engine

import (
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// A user's function that is due when it is added waits for no bucket. Under the default
// executor it does not wait for the driver either. Its caller starts a goroutine that takes
// it off the shard, and then runs it as a worker. By way of the queue and the driver, a
// function took twice as long to run.
//
// Until that goroutine has the function, it is pending like any other: it is counted, a
// cancel wins, a reset moves it, and Stop hands it back.
//
// The invariant: atOnce is open from the moment a goroutine is started for it until that
// goroutine finds it empty. So one goroutine at most is on its way to it, and takes the
// functions in the order in which they were added.

// openAtOnce opens atOnce for an entry, if it is not open. The caller holds s.mu.
func (s *shard) openAtOnce() {
	if !s.atOnce.IsOpen() {
		s.atOnce.Open(&s.arena, 0)
		if s.onAtOnce == nil {
			s.onAtOnce = s.runAtOnce // kept, or each go would allocate
		}
		go s.onAtOnce()
	}
}

// runAtOnce is the life of the goroutine that openAtOnce has started. It runs nothing before
// it has closed atOnce: a function may block, and must not delay what is added meanwhile.
func (s *shard) runAtOnce() {
	workers, runner := s.hub.atOnce, s.hub.runner
	runner.Tracer.Label() // instead of the labels of the goroutine that adds
	for {
		alone, tasks, more := s.takeAtOnce()
		if tasks != nil {
			workers.Enqueue(run.NewBatch(tasks...), runner)
		}
		if !more {
			workers.Work(alone, runner)
			return
		}
		workers.Start()
	}
}

// takeAtOnce takes a slice of what is in atOnce, and reports whether more is there. If not,
// it closes atOnce. A task that is alone costs no allocation.
func (s *shard) takeAtOnce() (alone run.Task, tasks []run.Task, more bool) {
	s.lock()
	defer s.unlock()
	if s.stopped {
		return nil, nil, false
	}
	s.makeHistory()
	now, n := s.clock.Now(), 0
	late := latenessRun{of: &s.history.lateness}
	for i := s.atOnce.TakeFirst(&s.arena); i != 0; i = s.atOnce.TakeFirst(&s.arena) {
		late.record(s.arena.Deadline(i), s.clock, now)
		task := run.Function(s.takeFunction(i))
		switch n++; n {
		case 1:
			alone = task
		case 2:
			tasks = append(tasks, alone, task)
			alone = nil
		default:
			tasks = append(tasks, task)
		}
		if n == SliceLen {
			break
		}
	}
	late.done()
	s.hub.runner.Admit(n)
	s.tidy(n)
	if more = s.atOnce.First(&s.arena) != 0; !more {
		s.atOnce.Close(&s.arena)
	}
	return alone, tasks, more
}
