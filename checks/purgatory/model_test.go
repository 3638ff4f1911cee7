package purgatory

import (
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
)

type kind int

const (
	change kind = iota // the number that operations wait for rises
	park
	end    // the instant in which an operation ends, no later than its done -> outcome
	cancel // -> whether this call has ended it
	check  // -> whether this call has ended it
	look   // -> outcome
	quiet  // the last look, when nothing is under way -> outcome
)

// input is something that is done to an operation; changes concern all of them. Its
// output is an Outcome, or a bool, or nil.
type input struct {
	kind kind
	id   int // of the operation, from 1
	want int // of park: the number that the operation waits for
}

// life is the state of one operation.
type life struct {
	number  int // what it has risen to
	want    int
	parked  bool
	outcome purgatory.Outcome
	claimed bool // a call has said that it ended it
}

// model says what one operation goes through, were there but one goroutine.
//
// A check that says no is legal at any time: somebody else may be asking, and will ask
// again. That this happens shows when all is quiet.
var model = porcupine.Model{
	Partition: partition,
	Init:      func() any { return life{} },
	Step: func(state, in, out any) (bool, any) {
		l, op := state.(life), in.(input)
		holds := l.number >= l.want
		ended := l.outcome != purgatory.Pending
		legal := true
		switch op.kind {
		case change:
			l.number++
			return true, l
		case park:
			legal = !l.parked
			l.parked, l.want = true, op.want
			return legal, l
		case end:
			legal = !ended && (out != purgatory.Satisfied || holds)
			l.outcome = out.(purgatory.Outcome)
		case cancel:
			legal = claim(&l, purgatory.Canceled, out.(bool)) && ended
		case check:
			legal = claim(&l, purgatory.Satisfied, out.(bool))
		case look:
			legal = out == l.outcome
		case quiet:
			legal = out == l.outcome && (ended || !holds)
		}
		return legal && l.parked, l
	},
	DescribeOperation: describe,
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

// claim takes note of a call that says whether it has ended the operation, and reports
// whether it may say so.
func claim(l *life, as purgatory.Outcome, said bool) bool {
	if !said {
		return true
	}
	legal := l.outcome == as && !l.claimed
	l.claimed = true
	return legal
}

// partition makes a history of each operation, with the changes in all of them.
func partition(history []porcupine.Operation) (parts [][]porcupine.Operation) {
	var changes []porcupine.Operation
	byID := map[int][]porcupine.Operation{}
	for _, op := range history {
		if in := op.Input.(input); in.kind == change {
			changes = append(changes, op)
		} else {
			byID[in.id] = append(byID[in.id], op)
		}
	}
	for _, part := range byID {
		parts = append(parts, append(part, changes...))
	}
	return parts
}

func describe(in, out any) string {
	op := in.(input)
	name := []string{"change", "park", "end", "cancel", "check", "look", "quiet"}[op.kind]
	switch op.kind {
	case change:
		return name
	case park:
		return fmt.Sprintf("park(%d for %d)", op.id, op.want)
	}
	return fmt.Sprintf("%s(%d) -> %v", name, op.id, out)
}

// The model itself, on histories that tell right from wrong.
func TestModel(t *testing.T) {
	const (
		satisfied = purgatory.Satisfied
		canceled  = purgatory.Canceled
		expired   = purgatory.Expired
		pending   = purgatory.Pending
	)
	op := func(call, ret int64, k kind, out any) porcupine.Operation {
		return porcupine.Operation{Input: input{k, 1, 1}, Call: call, Output: out, Return: ret}
	}
	parked := op(1, 2, park, nil)
	for _, c := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"is satisfied", []porcupine.Operation{parked, op(3, 4, change, nil), op(5, 6, end, satisfied), op(7, 8, quiet, satisfied)}, true},
		{"is satisfied before it holds", []porcupine.Operation{parked, op(3, 4, end, satisfied), op(5, 6, change, nil)}, false},
		{"is lost", []porcupine.Operation{parked, op(3, 4, change, nil), op(5, 6, quiet, pending)}, false},
		{"is still parked", []porcupine.Operation{parked, op(5, 6, quiet, pending)}, true},
		{"ends twice", []porcupine.Operation{parked, op(3, 4, end, expired), op(5, 6, end, canceled)}, false},
		{"ends before it is parked", []porcupine.Operation{op(-2, -1, end, expired), parked}, false},
		{"is parked twice", []porcupine.Operation{parked, op(3, 4, park, nil)}, false},

		{"is canceled", []porcupine.Operation{parked, op(3, 6, cancel, true), op(4, 5, end, canceled), op(7, 8, look, canceled)}, true},
		{"is canceled twice", []porcupine.Operation{parked, op(3, 6, cancel, true), op(4, 5, end, canceled), op(7, 8, cancel, true)}, false},
		{"is canceled in vain", []porcupine.Operation{parked, op(3, 6, cancel, false), op(4, 5, end, expired)}, true},
		{"is canceled in vain and parked", []porcupine.Operation{parked, op(3, 4, cancel, false), op(5, 6, end, expired)}, false},
		{"is canceled and expires", []porcupine.Operation{parked, op(3, 6, cancel, true), op(4, 5, end, expired)}, false},

		{"is checked", []porcupine.Operation{parked, op(1, 2, change, nil), op(3, 6, check, true), op(4, 5, end, satisfied)}, true},
		{"is checked in vain", []porcupine.Operation{parked, op(3, 4, check, false)}, true},
		{"is checked and expires", []porcupine.Operation{parked, op(1, 2, change, nil), op(3, 6, check, true), op(4, 5, end, expired)}, false},
		{"is seen as it was", []porcupine.Operation{parked, op(3, 4, end, expired), op(5, 6, look, pending)}, false},
	} {
		require.Equal(t, c.want, porcupine.CheckOperations(model, c.history), c.name)
	}
}
