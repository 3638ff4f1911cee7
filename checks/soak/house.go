package main

import (
	"math/rand/v2"
	"sync"
	"time"
)

// house makes one wheel, or two that share a Pool, and uses them until end.
func (s *soak) house(end time.Time) {
	s.virtual()
	s.blocked()
	a, b := randomShape(), randomShape()
	b.executor = a.executor
	switch a.executor {
	case poolCallerRuns, poolWait, poolDiscard:
		s.live(end, []shape{a, b}, newPool(a.executor, &s.violations))
	default:
		s.live(end, []shape{a}, nil)
	}
}

// live makes wheels of these shapes, uses them until end, and closes their accounts. P is
// the Pool that they share, or nil.
func (s *soak) live(end time.Time, shapes []shape, p *keptPool) {
	var wg sync.WaitGroup
	var lives []*life
	// Functions that the wheels fire after an early Close find the pool full.
	closeEarly := p != nil && rand.IntN(4) == 0
	for _, shape := range shapes {
		l := s.newLife(shape, p)
		l.ending.neverRoom = closeEarly && shape.executor == poolWait
		lives = append(lives, l)
	}
	for _, l := range lives {
		wg.Go(func() { l.live(end) })
	}
	if closeEarly {
		time.Sleep(time.Until(end) * 9 / 10)
		p.close(&s.violations)
	}
	wg.Wait()
	if p != nil {
		if !closeEarly {
			p.close(&s.violations)
		}
		for _, l := range lives {
			l.mode.Store(discarding)
		}
		p.callDiscarded()
	}
	for _, l := range lives {
		l.settle()
	}
	if p != nil {
		p.locals.settle()
	}
}
