package driver

import (
	"fmt"
	"time"
)

// Ref is the engine's address of a job. It stays the same over attempts, reschedules and
// restarts. So a handler can tell by it whether it has done a job before. It is text of at most
// 192 bytes that may be stored, of letters, digits and ".-_"; only the engine knows what is in it.
type Ref string

// State is the state of a job that is kept.
type State int

// The states of a job. One that is done or canceled is kept no longer.
const (
	Waiting State = iota + 1 // Waits for its time, for its next attempt, or for a worker.
	Running                  // A worker has claimed it.
	Dead                     // Its last attempt failed, or its handler discarded it.
)

// String returns "waiting", "running" or "dead"; for other values "State(0)" and the like.
func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Running:
		return "running"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Failure is an attempt that has failed.
type Failure struct {
	At      time.Time `json:"at"`                // When it ended, by the engine's clock.
	Attempt int       `json:"attempt,omitempty"` // Its number, from 1; 0 if no attempt began.
	Error   string    `json:"error"`             // At most 512 bytes, without the stack of a panic.
}
