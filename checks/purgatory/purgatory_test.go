package purgatory

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tickwheel/tickwheel/checks/internal/linear"
	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	rounds  = 2000 // many short histories, since a long one takes for ever to check
	clients = 4
	perEach = 6                     // steps of one client
	longest = 60 * time.Microsecond // deadline
)

func TestPurgatory(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(8))
	defer w.Stop()
	seen := map[string]int{}
	var c linear.Checker
	for n := range rounds {
		r := &round{t: t, p: purgatory.New[int](w)}
		r.run()
		r.check(n, &c)
		for _, op := range r.history {
			if in := op.Input.(input); in.kind == end || in.kind == cancel || in.kind == check {
				seen[strings.Split(describe(in, op.Output), "(")[0]+fmt.Sprint(" -> ", op.Output)]++
			}
		}
	}
	t.Log(seen)
	c.Report(t)
	for _, outcome := range []string{"Satisfied", "Expired", "Canceled"} {
		if seen["end -> "+outcome] == 0 {
			t.Errorf("nothing has ended as %s", outcome)
		}
	}
}

// round is one history.
type round struct {
	t      *testing.T
	p      *purgatory.Purgatory[int]
	clock  atomic.Int64 // a counter, since two readings of a real clock may be equal
	number atomic.Int64
	ids    atomic.Int64

	mu      sync.Mutex
	ops     []operation
	history []porcupine.Operation
}

type operation struct {
	*purgatory.Op[int]
	id      int
	expires bool // in this round
	done    *atomic.Int64
}

func (r *round) run() {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for client := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			<-begin
			for range perEach {
				r.step(client, random)
				for end := time.Now().Add(time.Duration(random.IntN(10)) * time.Microsecond); time.Now().Before(end); {
				}
			}
		})
	}
	close(begin)
	all.Wait()
	r.settle()
	for _, o := range r.ops {
		r.record(0, input{kind: quiet, id: o.id}, func() any { return o.Outcome() })
	}
}

// settle waits until done was called of all operations that have ended, and of those
// whose deadline comes in this round.
func (r *round) settle() {
	patience := time.Now().Add(30 * time.Second)
	for _, o := range r.ops {
		for o.expires && o.done.Load() == 0 || (o.Outcome() == purgatory.Pending) != (o.done.Load() == 0) {
			if time.Now().After(patience) {
				r.t.Fatalf("operation %d is %v, and done was called %d times", o.id, o.Outcome(), o.done.Load())
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// step does one thing at random. All operations are parked under key 0 and one more.
func (r *round) step(client int, random *rand.Rand) {
	o, ok := r.any(random)
	switch kind := random.IntN(10); {
	case kind < 3 || !ok:
		r.park(client, random)
	case kind < 6:
		r.record(client, input{kind: change}, func() any { r.number.Add(1); return nil })
		if ok {
			r.record(client, input{kind: check, id: o.id}, func() any { return o.Check() })
		}
		r.p.Notify(0)
	case kind < 7:
		r.record(client, input{kind: cancel, id: o.id}, func() any { return o.Cancel() })
	case kind < 9:
		r.record(client, input{kind: check, id: o.id}, func() any { return o.Check() })
	default:
		r.record(client, input{kind: look, id: o.id}, func() any { return o.Outcome() })
	}
}

func (r *round) any(random *rand.Rand) (operation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ops) == 0 {
		return operation{}, false
	}
	return r.ops[random.IntN(len(r.ops))], true
}

func (r *round) park(client int, random *rand.Rand) {
	id := int(r.ids.Add(1))
	want := r.number.Load() + random.Int64N(3)
	o := operation{id: id, expires: random.IntN(3) == 0, done: new(atomic.Int64)}
	d := time.Hour
	if o.expires {
		d = time.Duration(random.Int64N(int64(longest))) - longest/10
	}
	call := r.clock.Add(1)
	var err error
	try := func() bool {
		held := r.number.Load() >= want
		if rand.IntN(4) == 0 {
			time.Sleep(time.Microsecond) // so that others come between the answer and what becomes of it
		}
		return held
	}
	o.Op, err = r.p.Park(d, try, func(outcome purgatory.Outcome) {
		// It ended at some time between the call of Park and now.
		r.append(porcupine.Operation{ClientId: clients + id, Input: input{kind: end, id: id}, Call: call, Output: outcome, Return: r.clock.Add(1)})
		o.done.Add(1)
	}, 0, id)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.append(porcupine.Operation{ClientId: client, Input: input{kind: park, id: id, want: int(want)}, Call: call, Return: r.clock.Add(1)})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, o)
}

func (r *round) record(client int, in input, f func() any) {
	call := r.clock.Add(1)
	out := f()
	r.append(porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: r.clock.Add(1)})
}

func (r *round) append(op porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
}

// check has the history of each operation checked. One that is not linearizable is
// printed, and drawn where the flag -artifacts of go test puts it.
func (r *round) check(n int, c *linear.Checker) {
	for _, part := range partition(r.history) {
		if c.Check(model, part) {
			continue
		}
		_, info := porcupine.CheckOperationsVerbose(model, part, 0)
		drawing := filepath.Join(r.t.ArtifactDir(), fmt.Sprintf("round-%d.html", n))
		if err := porcupine.VisualizePath(model, info, drawing); err != nil {
			r.t.Error(err)
		}
		r.t.Fatalf("round %d: not linearizable; call, return, client, operation:\n%s", n, list(part))
	}
}

func list(history []porcupine.Operation) string {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var lines strings.Builder
	for _, op := range history {
		fmt.Fprintf(&lines, "%5d %5d  client %2d  %s\n", op.Call, op.Return, op.ClientId, describe(op.Input, op.Output))
	}
	return lines.String()
}
