package run

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// keeper is an executor of a user's own that keeps what it is given.
type keeper struct{ tasks [][]func() }

func (k *keeper) Execute(tasks []func()) { k.tasks = append(k.tasks, tasks) }

// A wheel uses one slice for all its calls of an executor. A task that was handed on must not stay
// there, or a function that has run would be kept until the next call.
func TestExecutorsEmptyTheSlice(t *testing.T) {
	executors := map[string]Executor{
		"Foreign":   Foreign{new(keeper)},
		"Submitter": Submitter{func(func()) {}},
		"Inline":    Inline{},
		"Queue":     NewQueue(nil),
		"Bounded":   NewBounded(1, 1, CallerRuns, nil),
		"full":      closedPool(),
	}
	for _, name := range slices.Sorted(maps.Keys(executors)) {
		r, tasks := new(Runner), []Task{Function(func() {}), Function(func() {}), Function(func() {})}
		r.Admit(len(tasks))
		executors[name].ExecuteTasks(tasks, r)
		require.Equal(t, make([]Task, 3), tasks, name)
	}
}
