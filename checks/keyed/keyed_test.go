package keyed

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
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/checks/internal/linear"
	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	rounds  = 1500 // for each executor; many short histories, since a long one takes for ever to check
	clients = 4
	perEach = 7                     // operations of one client
	longest = 40 * time.Microsecond // delay
)

func TestKeyed(t *testing.T) {
	t.Run("goroutines", func(t *testing.T) {
		testKeyed(t, &executor{inner: timingwheel.Goroutines()})
	})
	t.Run("inline", func(t *testing.T) {
		testKeyed(t, &executor{inner: timingwheel.Inline(), serial: true})
	})
	t.Run("slow queue", func(t *testing.T) {
		queue := make(chan func(), 1000) // more than a round has
		var consumer sync.WaitGroup
		consumer.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for task := range queue {
				pause(random)
				task()
			}
		})
		testKeyed(t, &executor{
			inner:  timingwheel.ExecutorFunc(func(task func()) { queue <- task }),
			serial: true,
		})
		close(queue)
		consumer.Wait()
	})
}

func testKeyed(t *testing.T, e *executor) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(8), timingwheel.WithExecutor(e))
	defer w.Stop()
	seen := map[string]int{}
	var c linear.Checker
	for n := range rounds {
		r := &round{wheel: w, keyed: timingwheel.NewKeyed[int](w), executor: e, keys: 1 + n%2, start: time.Now()}
		r.run(t)
		r.check(t, n, &c)
		for _, op := range r.history {
			seen[fmt.Sprintf("%s -> %v", kindNames[op.Input.(input).kind], op.Output)]++
		}
	}
	t.Log(seen)
	c.Report(t)
	require.Len(t, seen, 9, "each operation has had both outcomes, but for start, which has one")
}

// executor wraps one that is to be tested. It knows how many tasks have not yet
// returned, and when the one that is running began.
type executor struct {
	inner  timingwheel.Executor
	serial bool // tasks run one after the other

	clock       atomic.Int64
	outstanding atomic.Int64
	began       int64 // only if serial; belongs to the task that is running
}

func (e *executor) Execute(tasks []func()) {
	e.outstanding.Add(int64(len(tasks)))
	for i, task := range tasks {
		tasks[i] = func() {
			defer e.outstanding.Add(-1)
			if e.serial {
				e.began = e.now()
			}
			task()
		}
	}
	e.inner.Execute(tasks)
}

// now returns a time later than all before. It is a counter: two readings of a real clock
// may be equal, and those of different processors may not agree.
func (e *executor) now() int64 { return e.clock.Add(1) }

// round is one history.
type round struct {
	wheel    *timingwheel.TimingWheel
	keyed    *timingwheel.Keyed[int]
	executor *executor
	keys     int
	start    time.Time
	ids      atomic.Int64

	mu      sync.Mutex
	history []porcupine.Operation
}

func (r *round) run(t *testing.T) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for client := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			<-begin
			for range perEach {
				r.operate(client, random, true)
				pause(random)
			}
		})
	}
	close(begin)
	all.Wait()
	r.settle(t)
	for key := range r.keys {
		r.record(0, input{kind: lookup, key: key}, r.lookup(key))
	}
}

// operate does one operation at random. If more is true, a function that it schedules may
// do another one.
func (r *round) operate(client int, random *rand.Rand, more bool) {
	in := input{key: random.IntN(r.keys)}
	after := time.Duration(random.Int64N(int64(longest))) - longest/4 // a quarter is due at once
	in.at = time.Since(r.start) + after                               // no later than the deadline: the wheel reads the clock after this
	switch random.IntN(8) {
	case 0:
		in.kind = lookup
		r.record(client, in, r.lookup(in.key))
	case 1, 2:
		in.kind = cancel
		r.record(client, in, func() bool { return r.keyed.Cancel(in.key) })
	case 3, 4:
		in.kind = reset
		r.record(client, in, func() bool { return r.keyed.Reset(in.key, after) })
	default:
		in.kind, in.id = schedule, int(r.ids.Add(1))
		f := r.function(in, more && random.IntN(3) == 0)
		r.record(client, in, func() bool {
			replaced, err := r.keyed.Schedule(in.key, after, f)
			return replaced && err == nil
		})
	}
}

func (r *round) lookup(key int) func() bool {
	return func() bool {
		_, ok := r.keyed.Deadline(key)
		return ok
	}
}

// function returns what is scheduled under an id. The instant in which it starts is when
// the executor's task finds that the key still holds it: after the task has begun, and
// before the function's first line. Where tasks run at the same time, nobody can tell
// which task is whose; but that instant is not before the function was scheduled.
func (r *round) function(in input, more bool) func() {
	call := r.executor.now()
	return func() {
		ret, at := r.executor.now(), time.Since(r.start)
		if r.executor.serial {
			call = r.executor.began
		}
		client := clients + in.id
		r.append(porcupine.Operation{ClientId: client, Input: input{start, in.key, in.id, at}, Call: call, Output: true, Return: ret})
		if more {
			r.operate(client, rand.New(rand.NewPCG(rand.Uint64(), 0)), false)
		}
	}
}

func (r *round) record(client int, in input, f func() bool) {
	call := r.executor.now()
	out := f()
	ret := r.executor.now()
	r.append(porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret})
}

func (r *round) append(op porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
}

// settle waits until nothing is under way any more.
func (r *round) settle(t *testing.T) {
	r.waitUntilIdle(t)
	// A task that the driver had taken may belong to no key any more, and still be on its
	// way to the executor. It must not start. The driver hands over in order.
	over := make(chan struct{})
	if _, err := r.wheel.Schedule(0, func() { close(over) }); err != nil {
		t.Fatal(err)
	}
	<-over
	// Once more: a function that was running a moment ago may have scheduled another one
	// just after the first look. That one schedules none.
	r.waitUntilIdle(t)
}

func (r *round) waitUntilIdle(t *testing.T) {
	patience := time.Now().Add(2 * time.Minute)
	for r.keyed.Len() > 0 || r.wheel.Len() > 0 || r.executor.outstanding.Load() > 0 {
		if time.Now().After(patience) {
			t.Errorf("%d keys are held, %d tasks pending, and %d with the executor", r.keyed.Len(), r.wheel.Len(), r.executor.outstanding.Load())
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// check has the history of each key checked. One that is not linearizable is printed,
// and drawn where the flag -artifacts of go test puts it.
func (r *round) check(t *testing.T, n int, c *linear.Checker) {
	for _, part := range partition(r.history) {
		if c.Check(model, part) {
			continue
		}
		_, info := porcupine.CheckOperationsVerbose(model, part, 0)
		key := part[0].Input.(input).key
		drawing := filepath.Join(t.ArtifactDir(), fmt.Sprintf("round-%d-key-%d.html", n, key))
		if err := porcupine.VisualizePath(model, info, drawing); err != nil {
			t.Error(err)
		}
		t.Fatalf("round %d, key %d: not linearizable; call, return, client, operation:\n%s", n, key, list(part))
	}
}

func list(history []porcupine.Operation) string {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var lines strings.Builder
	for _, op := range history {
		from, to := op.Call-history[0].Call, op.Return-history[0].Call
		fmt.Fprintf(&lines, "%5d %5d  client %2d  %s\n", from, to, op.ClientId, describe(op.Input, op.Output))
	}
	return lines.String()
}

// pause lets a little time pass, and sometimes more. So operations meet the firing of
// what was scheduled before.
func pause(random *rand.Rand) {
	if random.IntN(10) == 0 {
		time.Sleep(longest)
		return
	}
	for end := time.Now().Add(time.Duration(random.Int64N(int64(longest / 2)))); time.Now().Before(end); {
	}
}
