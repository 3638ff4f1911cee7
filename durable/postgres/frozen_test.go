package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

func TestRunEndsWhileTheServerIsFrozen(t *testing.T) {
	t.Parallel()
	enginetest.RunEndsWhileFrozen(t, func(t *testing.T) (driver.Engine, func()) {
		srv := server(t)
		return newStore(srv).open(t), func() {
			require.NoError(t, srv.Freeze())
			t.Cleanup(func() { assert.NoError(t, srv.Thaw()) }) // its pool cannot be closed before
		}
	})
}
