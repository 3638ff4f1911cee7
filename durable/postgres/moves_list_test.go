package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// draw returns a move, or nil if there is nothing to make it with. A worker makes one move
// of a step at most, so that a Delivery is in one, as a Queue keeps it.
func (b *table) draw() *play {
	e := b.engines[rand.N(2)]
	switch rand.N(15) {
	case 0, 1:
		return b.insert(e, fmt.Sprint("j", len(b.recs)), "")
	case 2:
		return b.insert(e, fmt.Sprint("j", len(b.recs)), fmt.Sprint("key", rand.N(3)))
	case 3:
		return b.repeat(e)
	case 4, 5:
		return b.cancel(e)
	case 6:
		return b.move(e)
	case 7:
		if rand.N(2) > 0 {
			return b.redrive(e)
		}
		return b.deleteDead(e)
	}
	m := b.members[rand.N(len(b.members))]
	if m.busy {
		return nil
	}
	m.busy = true
	switch rand.N(14) {
	case 0, 1, 2, 3:
		return b.poll(m)
	case 4, 5, 6, 7:
		return b.claim(m)
	case 8, 9, 10, 11:
		return b.finish(m)
	case 12:
		return b.release(m)
	}
	return b.heartbeat(m)
}

// some returns a job that there is, the newer ones more often, or "".
func (b *table) some() string {
	n := len(b.recs)
	if n == 0 || b.focus != "" && rand.N(3) > 0 {
		return b.focus
	}
	return fmt.Sprint("j", n-1-rand.N(min(n, 12)))
}

// may returns what an answer allows: the changed row, the row as it was, or both if it is
// not known.
func may(answer, changed string, s, next jobState, applies bool) []jobState {
	switch {
	case answer == changed && applies:
		return []jobState{next}
	case answer == "uncertain" && applies:
		return []jobState{s, next}
	case answer == changed:
		return nil
	}
	return []jobState{s}
}

func (b *table) insert(e *postgres.Engine, id, key string) *play {
	rec := record(id, time.Now())
	rec.Key = key
	b.recs[id] = rec
	p := &play{name: "insert"}
	p.run = func(ctx context.Context) {
		_, errs := e.Insert(ctx, []driver.Record{rec})
		answer := answerOf(errs[0], "ok")
		p.effect = map[string]effect{id: {answer, func(s jobState) []jobState {
			next := jobState{phase: waits, key: key}
			if answer == "exists" && (key == "" || b.calm && !b.taken(key)) {
				return nil
			}
			return may(answer, "ok", s, next, s.phase == absent)
		}}}
	}
	return p
}

// refOf asks for a Ref, by an insert that is repeated: of a job that is there it changes
// nothing.
func (b *table) refOf(id string) driver.Ref {
	if b.refs[id] == "" && b.rowOf(b.rows, id).phase != absent {
		refs, _ := b.engines[0].Insert(b.t.Context(), []driver.Record{b.recs[id]})
		b.refs[id] = refs[0]
	}
	return b.refs[id]
}

// repeat inserts once more what there is, or was.
func (b *table) repeat(e *postgres.Engine) *play {
	id := b.some()
	if b.rowOf(b.rows, id).phase == absent {
		return nil
	}
	p := &play{name: "repeat"}
	p.run = func(ctx context.Context) {
		_, errs := e.Insert(ctx, []driver.Record{b.recs[id]})
		answer := answerOf(errs[0], "ok")
		p.effect = map[string]effect{id: {answer, func(s jobState) []jobState {
			if answer == "exists" {
				return nil // it is there itself
			}
			return []jobState{s}
		}}}
	}
	return p
}

func (b *table) cancel(e *postgres.Engine) *play {
	id := b.some()
	ref := b.refOf(id)
	if ref == "" {
		return nil
	}
	p := &play{name: "cancel"}
	p.run = func(ctx context.Context) {
		oks, errs := e.Cancel(ctx, []driver.Ref{ref})
		answer := answerOf(errs[0], fmt.Sprint(oks[0]))
		p.effect = map[string]effect{id: {answer, func(s jobState) []jobState {
			next := s
			next.phase = ended
			if answer == "false" && s.phase == waits {
				return nil
			}
			return may(answer, "true", s, next, s.phase == waits)
		}}}
	}
	return p
}

func (b *table) move(e *postgres.Engine) *play {
	id := b.some()
	ref := b.refOf(id)
	if ref == "" {
		return nil
	}
	p := &play{name: "move"}
	p.run = func(ctx context.Context) {
		ok, err := e.Move(ctx, ref, time.Now().Truncate(time.Microsecond))
		answer := answerOf(err, fmt.Sprint(ok))
		p.effect = map[string]effect{id: {answer, func(s jobState) []jobState {
			next := s
			next.version++
			if answer == "false" && s.phase == waits {
				return nil
			}
			return may(answer, "true", s, next, s.phase == waits)
		}}}
	}
	return p
}

// someDead returns a dead job, if there is one, or "".
func (b *table) someDead() (id string) {
	for i, r := range b.rows {
		if r.phase == dead {
			id = i
		}
	}
	return id
}

func (b *table) deleteDead(e *postgres.Engine) *play {
	id := b.someDead()
	ref := b.refOf(id)
	if ref == "" {
		return nil
	}
	p := &play{name: "delete"}
	p.run = func(ctx context.Context) {
		answer := answerOf(e.Delete(ctx, ref), "ok")
		p.effect = map[string]effect{id: {answer, func(s jobState) []jobState {
			next := s
			next.phase = ended
			if answer == "not found" && s.phase == dead {
				return nil
			}
			return may(answer, "ok", s, next, s.phase == dead)
		}}}
	}
	return p
}

func (b *table) redrive(e *postgres.Engine) *play {
	id := b.someDead()
	ref := b.refOf(id)
	if ref == "" {
		return nil
	}
	p := &play{name: "redrive"}
	p.run = func(ctx context.Context) {
		answer := answerOf(e.Redrive(ctx, ref, time.Now().Truncate(time.Microsecond)), "ok")
		p.effect = map[string]effect{id: {answer, func(s jobState) []jobState {
			next := s
			next.phase = waits
			next.version++
			if answer == "not found" && s.phase == dead || answer == "exists" && b.calm && !b.taken(b.recs[id].Key) {
				return nil
			}
			return may(answer, "ok", s, next, s.phase == dead)
		}}}
	}
	return p
}

// poll changes nothing that the model has; what it hands out may be claimed.
func (b *table) poll(m *member) *play {
	p := &play{name: "poll"}
	p.run = func(ctx context.Context) {
		held, err := postgres.Poll(ctx, m.w)
		if err != nil {
			return // an answer that was lost too often
		}
		for _, h := range held {
			id := h.Record.ID
			if old := m.held[id]; old == nil || old.Record.Version < h.Record.Version {
				m.held[id] = h
			}
		}
	}
	return p
}
