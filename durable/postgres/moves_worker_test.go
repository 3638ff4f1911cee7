package postgres_test

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// pick returns some of what a member holds, claimed or not.
func (b *table) pick(m *member, claimed bool) (held []*driver.Delivery) {
	for id, h := range m.held {
		if _, mine := m.claimOf(id); mine == claimed && (id == b.focus || rand.N(3) == 0) {
			held = append(held, h)
		}
	}
	return held
}

// claimOf returns the number of the claim by which a member runs a job.
func (m *member) claimOf(id string) (int32, bool) {
	for _, claims := range []map[string]int32{m.mine, m.lost} {
		if c, ok := claims[id]; ok {
			return c, true
		}
	}
	return 0, false
}

func (m *member) forget(id string) {
	delete(m.held, id)
	delete(m.mine, id)
	delete(m.lost, id)
}

func (b *table) claim(m *member) *play {
	held := b.pick(m, false)
	if len(held) == 0 {
		return nil
	}
	p := &play{name: "claim", effect: map[string]effect{}}
	p.run = func(ctx context.Context) {
		for i, v := range m.w.Claim(ctx, held) {
			p.effect[held[i].Record.ID] = b.claimed(m, held[i], v.Status)
		}
	}
	p.done = func(now map[string]jobState) {
		for id, e := range p.effect {
			switch r := now[id]; {
			case e.answer == "gone":
				m.forget(id)
			case e.answer == "suspect":
				m.held[id].Exact = true // claimed so the next time
			case e.answer == "mine" && b.alive[m.id]:
				m.mine[id] = r.claim
			case e.answer == "mine" && r.holder == m.id:
				m.lost[id] = r.claim
			case e.answer == "mine":
				m.lost[id] = -1 // overtaken at once
			}
		}
	}
	return p
}

// claimed is what an answer to a claim says of a row. A worker that has claimed the job in a
// call whose answer was lost has it. Where there is other traffic RetryLater may mean anything.
func (b *table) claimed(m *member, h *driver.Delivery, v driver.ClaimStatus) effect {
	answer := map[driver.ClaimStatus]string{driver.Granted: "mine", driver.Gone: "gone", driver.RetryLater: "later", driver.Suspect: "suspect"}[v]
	return effect{answer, func(s jobState) []jobState {
		there := s.phase <= runs && s.version == int32(h.Record.Version)
		own := there && s.phase == runs && s.holder == m.id
		free := there && (s.phase == waits || s.phase == runs && !own && !b.alive[s.holder])
		next := s
		next.phase, next.holder, next.claim = runs, m.id, s.claim+1
		switch {
		case answer == "mine" && own, answer == "gone" && !there:
			return []jobState{s}
		case answer == "suspect" && free && !h.Exact:
			return []jobState{s}
		case answer == "mine" && free:
			return []jobState{next}
		case answer == "later" && there && !own && !free:
			return []jobState{s}
		case answer == "later" && !b.calm && free:
			return []jobState{s, next}
		case answer == "later" && !b.calm:
			return []jobState{s}
		}
		return nil
	}}
}

func (b *table) finish(m *member) *play {
	held := b.pick(m, true)
	if len(held) == 0 {
		return nil
	}
	ends := []driver.End{driver.Done, driver.Retry, driver.DeadLetter}
	var outs []driver.Completion
	claims := map[string]int32{}
	for _, h := range held {
		outs = append(outs, driver.Completion{Delivery: h, End: ends[rand.N(3)], At: time.Now().Truncate(time.Microsecond), Error: "no"})
		claims[h.Record.ID], _ = m.claimOf(h.Record.ID)
	}
	p := &play{name: "finish", effect: map[string]effect{}}
	p.run = func(ctx context.Context) {
		for i, err := range m.w.Finish(ctx, outs) {
			id, end := outs[i].Delivery.Record.ID, outs[i].End
			answer := answerOf(err, "ok")
			if answer == "ok" || answer == "lease lost" {
				m.forget(id)
			}
			p.effect[id] = effect{answer, func(s jobState) []jobState {
				its := s.phase == runs && s.holder == m.id && s.claim == claims[id]
				next := s
				next.holder = 0
				switch end {
				case driver.Done:
					next.phase = ended
				case driver.Retry:
					next.phase = waits
					next.version++
				case driver.DeadLetter:
					next.phase = dead
				}
				switch {
				case answer == "ok" && its:
					return []jobState{next}
				case answer == "lease lost" && !its:
					return []jobState{s}
				case answer == "ok" && b.cut: // its answer may have been the one that was lost
					return []jobState{s}
				case answer != "ok" && answer != "lease lost" && !b.calm: // locked
					return []jobState{s}
				}
				return nil
			}}
		}
	}
	return p
}

func (b *table) release(m *member) *play {
	held := append(b.pick(m, true), b.pick(m, false)...)
	if len(held) == 0 {
		return nil
	}
	claims := map[string]int32{}
	for _, h := range held {
		id := h.Record.ID
		claims[id] = -1 // in hand, or claimed in a call whose answer was lost
		if c, ok := m.claimOf(id); ok {
			claims[id] = c
		}
		m.forget(id)
	}
	p := &play{name: "release", effect: map[string]effect{}}
	p.run = func(ctx context.Context) {
		answer := answerOf(m.w.Release(ctx, held, 0), "ok")
		for _, h := range held {
			id := h.Record.ID
			p.effect[id] = effect{answer, func(s jobState) []jobState {
				next := s
				next.phase, next.holder = waits, 0
				own := s.phase == runs && s.holder == m.id
				switch {
				case own && s.claim == claims[id]:
					return []jobState{next}
				case own && claims[id] == -1:
					return []jobState{s, next}
				}
				return []jobState{s}
			}}
		}
	}
	return p
}

// heartbeat renews a lease, also one that is over: what others have not taken over is kept.
func (b *table) heartbeat(m *member) *play {
	p := &play{name: "heartbeat"}
	p.run = func(ctx context.Context) {
		_ = m.w.Heartbeat(ctx) // who lives is read
	}
	return p
}
