package enginetest_test

import (
	"testing"

	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// The package of an engine has a test that runs all of these. Each call of newStore returns
// an empty store: here one in memory.
func ExampleRun() {
	// func TestEngine(t *testing.T)
	test := func(t *testing.T) {
		newStore := func(testing.TB) enginetest.Store { return enginetest.NewMemory() }
		enginetest.Run(t, newStore)
	}
	_ = test
}
