package keyed

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

type kind int

const (
	schedule kind = iota // -> replaced
	cancel               // -> whether there was something to cancel
	reset                // -> whether there was something to reset
	lookup               // -> whether Deadline has found something
	start                // the instant in which a function starts
)

var kindNames = []string{"schedule", "cancel", "reset", "lookup", "start"}

// input is an operation on a key; its output is a bool. Every scheduled function
// has an id of its own, from 1.
type input struct {
	kind kind
	key  int
	id   int           // of schedule and start
	at   time.Duration // the deadline, of schedule and reset; the time, of start
}

// held is the state of a key: the id of the function that it holds, or 0, and the time
// before which that function must not start.
type held struct {
	id       int
	deadline time.Duration
}

// model says what a Keyed does if there is only one goroutine. Keys do not affect each
// other, so the model knows one key only.
//
// It does not say that a function starts in the end. If one is lost, the lookup shows it
// with which each history ends.
var model = porcupine.Model{
	Partition: partition,
	Init:      func() any { return held{} },
	Step: func(state, in, out any) (bool, any) {
		key, op := state.(held), in.(input)
		legal := out.(bool) == (key.id != 0)
		switch op.kind {
		case schedule:
			key = held{op.id, op.at}
		case cancel:
			key = held{}
		case reset:
			if key.id != 0 {
				key.deadline = op.at
			}
		case start:
			legal = key.id == op.id && op.at >= key.deadline
			key = held{}
		}
		return legal, key
	},
	DescribeOperation: describe,
	DescribeState: func(state any) string {
		if key := state.(held); key.id != 0 {
			return fmt.Sprintf("holds %d until %v", key.id, key.deadline)
		}
		return "nothing"
	},
}

func partition(history []porcupine.Operation) (parts [][]porcupine.Operation) {
	index := map[int]int{}
	for _, op := range history {
		key := op.Input.(input).key
		i, ok := index[key]
		if !ok {
			i = len(parts)
			index[key] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

func describe(in, out any) string {
	switch op := in.(input); op.kind {
	case schedule:
		return fmt.Sprintf("schedule(%d for %v) -> %v", op.id, op.at, out)
	case reset:
		return fmt.Sprintf("reset(to %v) -> %v", op.at, out)
	case start:
		return fmt.Sprintf("start(%d at %v)", op.id, op.at)
	default:
		return fmt.Sprintf("%s -> %v", kindNames[op.kind], out)
	}
}

// The model itself, on histories that tell right from wrong.
func TestModel(t *testing.T) {
	op := func(call, ret int64, k kind, id int, out bool) porcupine.Operation {
		at := call // due at once
		if k == start {
			at = ret
		}
		return porcupine.Operation{Input: input{k, 0, id, time.Duration(at)}, Call: call, Output: out, Return: ret}
	}
	due := func(at time.Duration, op porcupine.Operation) porcupine.Operation {
		in := op.Input.(input)
		in.at = at
		op.Input = in
		return op
	}
	scheduled := op(1, 2, schedule, 1, false)
	for _, c := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"starts", []porcupine.Operation{scheduled, op(3, 4, start, 1, true), op(5, 6, lookup, 0, false)}, true},
		{"starts twice", []porcupine.Operation{scheduled, op(3, 4, start, 1, true), op(5, 6, start, 1, true)}, false},
		{"is lost", []porcupine.Operation{scheduled, op(3, 4, lookup, 0, false)}, false},
		{"starts and stays", []porcupine.Operation{scheduled, op(3, 4, start, 1, true), op(5, 6, lookup, 0, true)}, false},
		{"starts before it was scheduled", []porcupine.Operation{op(-2, -1, start, 1, true), scheduled}, false},

		{"is canceled", []porcupine.Operation{scheduled, op(3, 4, cancel, 0, true), op(5, 6, cancel, 0, false)}, true},
		{"is canceled twice", []porcupine.Operation{scheduled, op(3, 4, cancel, 0, true), op(5, 6, cancel, 0, true)}, false},
		{"is canceled twice at a time", []porcupine.Operation{scheduled, op(3, 5, cancel, 0, true), op(4, 6, cancel, 0, true)}, false},
		{"is canceled and starts", []porcupine.Operation{scheduled, op(3, 4, cancel, 0, true), op(1, 6, start, 1, true)}, false},
		{"is canceled in vain and starts", []porcupine.Operation{scheduled, op(3, 4, cancel, 0, false), op(1, 6, start, 1, true)}, true},
		{"starts after a cancel in vain", []porcupine.Operation{scheduled, op(3, 4, cancel, 0, false), op(5, 6, start, 1, true)}, false},

		{"is reset and starts", []porcupine.Operation{scheduled, op(3, 4, reset, 0, true), op(1, 6, start, 1, true)}, true},
		{"starts and is reset", []porcupine.Operation{scheduled, op(3, 4, start, 1, true), op(5, 6, reset, 0, true)}, false},

		{"starts when it is due", []porcupine.Operation{due(6, scheduled), op(3, 6, start, 1, true)}, true},
		{"starts early", []porcupine.Operation{due(7, scheduled), op(3, 6, start, 1, true)}, false},
		{"is put off and starts early", []porcupine.Operation{scheduled, due(7, op(3, 4, reset, 0, true)), op(1, 6, start, 1, true)}, false},
		{"is put off in vain and starts", []porcupine.Operation{scheduled, due(7, op(3, 4, reset, 0, false)), op(1, 6, start, 1, true)}, true},
		{"is brought forward", []porcupine.Operation{due(7, scheduled), due(5, op(3, 4, reset, 0, true)), op(1, 6, start, 1, true)}, true},

		{"is replaced", []porcupine.Operation{scheduled, op(3, 4, schedule, 2, true), op(5, 6, start, 2, true)}, true},
		{"is replaced and starts", []porcupine.Operation{scheduled, op(3, 4, schedule, 2, true), op(1, 6, start, 1, true)}, false},
		{"starts and is replaced", []porcupine.Operation{scheduled, op(1, 4, start, 1, true), op(5, 6, schedule, 2, true)}, false},
		{"starts while it is replaced", []porcupine.Operation{scheduled, op(3, 6, schedule, 2, false), op(1, 5, start, 1, true)}, true},
		{"is replaced and not told", []porcupine.Operation{scheduled, op(3, 4, schedule, 2, false), op(1, 6, start, 2, true)}, false},
	} {
		require.Equal(t, c.want, porcupine.CheckOperations(model, c.history), c.name)
	}

	other := op(5, 6, cancel, 0, false)
	other.Input = input{kind: cancel, key: 1}
	require.True(t, porcupine.CheckOperations(model, []porcupine.Operation{scheduled, other}), "another key")
}
