package main

import "sync"

// ledger holds the tasks that are armed. It is striped, because every call on a wheel
// passes through it. Its methods may be called with a task's mutex held.
type ledger struct {
	stripes [16]struct {
		mu    sync.Mutex
		tasks map[*task]struct{} // guarded by mu
	}
}

func (l *ledger) put(t *task) {
	s := &l.stripes[t.stripe]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks == nil {
		s.tasks = make(map[*task]struct{})
	}
	s.tasks[t] = struct{}{}
}

func (l *ledger) remove(t *task) {
	s := &l.stripes[t.stripe]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, t)
}

// left returns the tasks that are armed.
func (l *ledger) left() (tasks []*task) {
	for i := range l.stripes {
		s := &l.stripes[i]
		s.mu.Lock()
		for t := range s.tasks {
			tasks = append(tasks, t)
		}
		s.mu.Unlock()
	}
	return tasks
}
