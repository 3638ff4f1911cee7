//go:build unix

package jetstream_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

func TestRunEndsWhileTheServerIsFrozen(t *testing.T) {
	t.Parallel()
	enginetest.RunEndsWhileFrozen(t, func(t *testing.T) (driver.Engine, func()) {
		s := newStore(t)
		return s.Open(t), func() {
			t.Cleanup(func() { assert.NoError(t, s.process.Signal(syscall.SIGCONT)) }) // it does not end before
			require.NoError(t, s.process.Signal(syscall.SIGSTOP))
		}
	})
}
