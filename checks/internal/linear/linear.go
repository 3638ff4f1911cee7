// Package linear decides whether histories are linearizable, and leaves out those that would
// take for ever. It bounds the work rather than the time, so that the answer for a history
// does not depend on how busy the machine is.
package linear

import (
	"context"
	"testing"

	"github.com/anishathalye/porcupine"
)

// most is how many steps of the model a history may take: about a second. Nearly all take
// some hundred.
const most = 1 << 20

// Checker counts what it has checked. The zero Checker is ready to use.
type Checker struct{ decided, undecided, longest int }

// Check returns false if a history, of one partition, is certainly not linearizable.
func (c *Checker) Check(model porcupine.Model, history []porcupine.Operation) bool {
	steps, step := 0, model.StepContext
	if step == nil {
		step = func(_ context.Context, state, in, out any) (bool, any) { return model.Step(state, in, out) }
	}
	bounded := model
	bounded.Step = nil
	bounded.StepContext = func(ctx context.Context, state, in, out any) (bool, any) {
		if steps++; steps > most {
			return false, nil
		}
		return step(ctx, state, in, out)
	}
	ok := porcupine.CheckOperations(bounded, history)
	if steps > most {
		c.undecided++
		return true
	}
	c.decided++
	c.longest = max(c.longest, steps)
	return ok
}

// Report logs how many histories were left out, and fails the test if it was every second one.
func (c *Checker) Report(t *testing.T) {
	t.Helper()
	t.Logf("%d histories checked in at most %d steps, %d left out", c.decided, c.longest, c.undecided)
	if c.undecided >= c.decided {
		t.Errorf("only %d of %d histories could be checked", c.decided, c.decided+c.undecided)
	}
}
