package enginetest

import (
	"testing"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// Memory is a Store of package memory, by the time that passes.
type Memory struct{ store *memory.Store }

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{memory.New(nil)} }

// Open returns an engine on the Memory.
func (m *Memory) Open(testing.TB) driver.Engine { return m.store.Open() }

// Restart does what the restart of a server would.
func (m *Memory) Restart(testing.TB) { m.store.Restart() }
