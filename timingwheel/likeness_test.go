package timingwheel

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The tests in this file do everything twice, on the wheel and with the standard library.
// Both run in one bubble with one clock, at whole ticks only. After every step the tests
// compare all that can be seen. The specification is what the standard library does.

func TestSizeOfAContext(t *testing.T) {
	require.LessOrEqual(t, int(unsafe.Sizeof(deadlineCtx{})), 176, "a size class of the allocator")
}
