package engine

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Processors that add for the first time get the shards in turn, and so all are used also if
// no two processors ever collide.
func TestProcessorsGetShardsInTurn(t *testing.T) {
	e := newTestWheel(withShards(4))
	defer e.Stop()
	for range 2 * len(e.shards) {
		e.tokens = sync.Pool{} // the next add is the first of a processor
		_, err := e.Schedule(time.Hour, mustNotRun)
		require.NoError(t, err)
	}
	for i := range e.shards {
		require.Equal(t, 2, e.shards[i].len(), "shard %d", i)
	}
}
