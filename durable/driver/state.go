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

// The states of a job. Only a job with a Retain is kept as StateDone or StateCanceled; another one is removed when it
// is done or canceled.
const (
	Waiting       State = iota + 1 // Waits for its time, for its next attempt, or for a worker.
	Running                        // A worker has claimed it.
	Dead                           // Its last attempt failed, or its handler discarded it.
	StateDone                      // Its handler returned nil, a newer job of its key superseded it, or MissedSkip or MissedEach left it out.
	StateCanceled                  // Cancel ended it, while it waited or ran.
)

// Ended reports whether a job in the state has ended: it is dead, done or canceled.
func (s State) Ended() bool { return s == Dead || s == StateDone || s == StateCanceled }

// String returns "waiting", "running", "dead", "done" or "canceled"; for other values "State(0)" and the like.
func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Running:
		return "running"
	case Dead:
		return "dead"
	case StateDone:
		return "done"
	case StateCanceled:
		return "canceled"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Ending describes the end of a job that has a Retain. An engine stores it with the job, in the
// commit that ends the job.
type Ending struct {
	State  State     `json:"state"`           // Dead, StateDone or StateCanceled.
	Began  time.Time `json:"began,omitzero"`  // When the last attempt began, by the engine's clock; zero if none has.
	Ended  time.Time `json:"ended"`           // When the job ended, by the engine's clock.
	Worker string    `json:"worker,omitzero"` // The worker that stored the end; "" if the job was canceled while it waited.
}

// Failure is an attempt that has failed.
type Failure struct {
	At      time.Time `json:"at"`                // When it ended, by the engine's clock.
	Attempt int       `json:"attempt,omitempty"` // Its number, from 1; 0 if no attempt began.
	Error   string    `json:"error"`             // At most 512 bytes, without the stack of a panic.
}
