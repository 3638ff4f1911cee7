package purgatory

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/checks/internal/linear"
	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// set has operations, by their number.
type set [2]uint64

func (s set) has(id byte) bool   { return s[id/64]&(1<<(id%64)) != 0 }
func (s set) with(id byte) set   { s[id/64] |= 1 << (id % 64); return s }
func (s set) meets(ids set) bool { return s[0]&ids[0]|s[1]&ids[1] != 0 }

// line is who waits under one key, in the order of parking, and who has been satisfied of those
// that nobody knows who did it of.
type line struct {
	waiting   string // a byte each
	satisfied set
	by        [clients * perEach]byte // how many of these, by each call
}

func (l line) ids() (ids set) {
	for i := range l.waiting {
		ids = ids.with(l.waiting[i])
	}
	return ids
}

// What is done to a line. A call of Notify or NotifyN is one taken for each that it says it
// has satisfied, and one nobody if these were fewer than it was asked for. Done is called by
// the goroutine that has ended the operation, so most are known. Without that the order of
// those who are taken would have to be guessed, and a history took minutes to check.
type (
	joined struct {
		id     byte
		atOnce bool // done was called before Park returned
	}
	taken   struct{ id byte }      // by a call that has called done
	unknown struct{ call, n byte } // taken, the n-th that this call left to Park
	nobody  struct{ before set }   // those whose Park had returned when the call began
	told    struct{ id byte }      // Park calls done
	over    struct{ left set }     // nothing is under way any more
)

// lineModel says what a line goes through, were there but one goroutine.
//
// A call that comes to an operation while its Park is under way leaves it to Park, which
// satisfies it then. Such an operation has not been in the line. Or it has been, and its
// Park has only called done for the other.
var lineModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{line{}} },
	Step: func(state, in, _ any) []any {
		l := state.(line)
		switch in := in.(type) {
		case joined:
			never := l
			l.waiting += string([]byte{in.id})
			if in.atOnce {
				never.satisfied = never.satisfied.with(in.id)
				return []any{l, never}
			}
			return []any{l}
		case taken:
			if l.waiting != "" && l.waiting[0] == in.id {
				l.waiting = l.waiting[1:]
				return []any{l}
			}
		case unknown:
			if l.waiting != "" && l.by[in.call] == in.n { // in turn, or there were too many orders to try
				l.satisfied = l.satisfied.with(l.waiting[0])
				l.waiting = l.waiting[1:]
				l.by[in.call]++
				return []any{l}
			}
		case nobody:
			if !l.ids().meets(in.before) {
				return []any{l}
			}
		case told:
			if l.satisfied.has(in.id) {
				return []any{l}
			}
		case over:
			if l.ids() == in.left {
				return []any{l}
			}
		}
		return nil
	},
	DescribeOperation: func(in, _ any) string { return fmt.Sprintf("%T%+v", in, in) },
}).ToModel()

// Notify and NotifyN satisfy those who wait in the order of their parking, no more than they
// say, and all if they stop early. Several goroutines call them at the same time, and park.
// Nobody is canceled and nothing expires: what is passed over because another goroutine asks
// it is satisfied by that one, and the order holds.
func TestLine(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	var c linear.Checker
	for n := range rounds {
		r := &lineRound{t: t, p: purgatory.New[int](w), calling: map[string]*notifying{}}
		r.run()
		if !c.Check(lineModel, r.history) {
			t.Fatalf("round %d: not linearizable; call, return, client, operation:\n%s", n, r.list())
		}
		r.p.Close()
	}
	c.Report(t)
}

// lineRound is one history.
type lineRound struct {
	t *testing.T
	p *purgatory.Purgatory[int]

	mu      sync.Mutex
	clock   int64 // a counter, since two readings of a real clock may be equal
	last    byte
	calls   byte
	parked  set // Park has returned
	told    set
	atOnce  set                   // of those: by Park
	calling map[string]*notifying // by goroutine
	history []porcupine.Operation
}

// notifying is a call of Notify or NotifyN that is under way.
type notifying struct {
	at    int64
	known int // how often it has called done
}

// goroutine returns the name of the one that calls it.
func goroutine() string {
	var buf [32]byte
	name, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), " [")
	return name
}

func (r *lineRound) run() {
	if rand.IntN(4) == 0 { // then a visit comes to its second batch
		for range 40 {
			r.park(0)
		}
	}
	var all sync.WaitGroup
	begin := make(chan struct{})
	for client := range clients {
		all.Go(func() {
			<-begin
			for range perEach {
				r.step(client)
				for end := time.Now().Add(time.Duration(rand.IntN(5)) * time.Microsecond); time.Now().Before(end); {
				}
			}
		})
	}
	close(begin)
	all.Wait()
	left := r.parked
	for i := range left {
		left[i] &^= r.told[i]
	}
	now := r.now()
	r.append(porcupine.Operation{Input: over{left}, Call: now, Return: r.now()})
}

func (r *lineRound) step(client int) {
	switch rand.IntN(6) {
	case 0, 1, 2:
		r.park(client)
	case 3:
		r.notify(client, math.MaxInt, func() int { return r.p.Notify(0) })
	default:
		n := 1 + rand.IntN(3)
		r.notify(client, n, func() int { return r.p.NotifyN(0, n) })
	}
}

func (r *lineRound) park(client int) {
	r.mu.Lock()
	r.last++
	id := r.last
	r.mu.Unlock()
	call := r.now()
	_, err := r.p.Park(time.Hour, nil, func(purgatory.Outcome) { r.done(id) }, 0)
	if err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	atOnce := r.atOnce.has(id)
	r.parked = r.parked.with(id)
	r.mu.Unlock()
	r.append(porcupine.Operation{ClientId: client, Input: joined{id: id, atOnce: atOnce}, Call: call, Return: r.now()})
}

func (r *lineRound) done(id byte) {
	self, now := goroutine(), r.now()
	op := porcupine.Operation{ClientId: clients + int(id), Input: told{id}, Call: now, Return: r.now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = r.told.with(id)
	if c := r.calling[self]; c != nil {
		c.known++
		op.Input, op.Call = taken{id}, c.at
	} else {
		r.atOnce = r.atOnce.with(id)
	}
	r.history = append(r.history, op)
}

func (r *lineRound) notify(client, most int, notify func() int) {
	self, c := goroutine(), &notifying{at: r.now()}
	r.mu.Lock()
	before, number := r.parked, r.calls
	r.calls++
	r.calling[self] = c
	r.mu.Unlock()
	n := notify()
	ret := r.now()
	r.mu.Lock()
	delete(r.calling, self)
	r.mu.Unlock()
	if n > most || n < c.known {
		r.t.Errorf("%d satisfied, of %d at most and %d at the least", n, most, c.known)
	}
	for i := range n - c.known {
		r.append(porcupine.Operation{ClientId: client, Input: unknown{number, byte(i)}, Call: c.at, Return: ret})
	}
	if n < most {
		r.append(porcupine.Operation{ClientId: client, Input: nobody{before}, Call: c.at, Return: ret})
	}
}

func (r *lineRound) now() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	return r.clock
}

func (r *lineRound) append(op porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
}

func (r *lineRound) list() string {
	slices.SortFunc(r.history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var lines strings.Builder
	for _, op := range r.history {
		fmt.Fprintf(&lines, "%5d %5d  client %2d  %s\n", op.Call, op.Return, op.ClientId, lineModel.DescribeOperation(op.Input, nil))
	}
	return lines.String()
}

// The model itself, on histories that tell right from wrong.
func TestLineModel(t *testing.T) {
	op := func(call, ret int64, in any) porcupine.Operation {
		return porcupine.Operation{Input: in, Call: call, Return: ret}
	}
	first, second := op(1, 2, joined{id: 1}), op(3, 4, joined{id: 2})
	one, both := set{}.with(1), set{}.with(1).with(2)
	for _, c := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"the first", []porcupine.Operation{first, second, op(5, 8, unknown{0, 0}), op(6, 7, told{1}), op(9, 10, over{set{}.with(2)})}, true},
		{"the second", []porcupine.Operation{first, second, op(5, 8, unknown{0, 0}), op(6, 7, told{2})}, false},
		{"one too many", []porcupine.Operation{first, second, op(5, 9, unknown{0, 0}), op(6, 7, told{1}), op(8, 8, told{2})}, false},
		{"two at once", []porcupine.Operation{first, second, op(5, 9, unknown{0, 0}), op(5, 9, unknown{1, 0}), op(6, 7, told{2}), op(8, 8, told{1}), op(10, 11, over{})}, true},
		{"one is lost", []porcupine.Operation{first, second, op(5, 6, unknown{0, 0}), op(7, 8, over{both})}, false},
		{"stops early", []porcupine.Operation{first, second, op(5, 6, nobody{one})}, false},
		{"does not see what comes later", []porcupine.Operation{first, op(3, 6, unknown{0, 0}), op(3, 6, nobody{one}), op(4, 5, joined{id: 2})}, true},
		{"is satisfied by its Park", []porcupine.Operation{op(1, 6, joined{id: 1, atOnce: true}), op(2, 3, nobody{}), op(4, 5, told{1}), op(7, 8, over{})}, true},
		{"the known first", []porcupine.Operation{first, second, op(5, 6, taken{1}), op(5, 8, taken{2}), op(9, 10, over{})}, true},
		{"the known second", []porcupine.Operation{first, second, op(5, 7, taken{2}), op(8, 9, taken{1}), op(10, 11, over{})}, false},
		{"a known one whose turn was later", []porcupine.Operation{first, op(3, 6, joined{id: 2}), op(4, 5, taken{2}), op(7, 8, taken{1})}, false},
		{"a known one is not in the line", []porcupine.Operation{first, op(4, 5, taken{1}), op(6, 7, taken{1})}, false},
		{"is satisfied by nobody", []porcupine.Operation{first, op(4, 5, told{1})}, false},
	} {
		require.Equal(t, c.want, porcupine.CheckOperations(lineModel, c.history), c.name)
	}
}
