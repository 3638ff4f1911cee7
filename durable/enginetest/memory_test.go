package enginetest_test

import (
	"testing"

	"github.com/tickwheel/tickwheel/durable/enginetest"
)

func TestMemory(t *testing.T) {
	enginetest.RunInBubbles(t, func(testing.TB) enginetest.Store { return enginetest.NewMemory() })
}
