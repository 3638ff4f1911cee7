package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// admission decides whether a job still fits: a full store must have room for claims and ends, or nothing ends and it
// stays full. So the last fifth takes no new jobs; and from seven tenths on what has ended is removed at once, instead
// of with its bucket.
//
// Mu guards the reserve and what is known of the account. The stream counts its bytes itself, and nothing has to be read
// together with them: they are an estimate between two answers of the server. It decides nothing about a single job.
type admission struct {
	*buckets
	local    bool  // the server is of this process
	maxBytes int64 // 0: none

	makingRoom sync.Mutex // held for the whole of makeRoom

	mu      sync.Mutex
	reserve reserve
}

// readServer reads the server's clock, and how full the stream is.
func (a *admission) readServer(ctx context.Context) (time.Time, time.Duration, error) {
	if a.closed.Err() != nil {
		return time.Time{}, 0, a.closedBy()
	}
	info, err := a.info(ctx, a.subject("v.*"))
	if err != nil {
		return time.Time{}, 0, err
	}
	a.mu.Lock()
	a.reserve.seen(info.subjects[a.reserveFlag()], info.subjects[a.reservePieces()])
	a.mu.Unlock()
	if a.local {
		info.now = time.Now()
	}
	if a.shift != nil {
		info.now = a.shift(info.leader, info.now)
	}
	return info.now, 0, nil
}

// most returns how large the stream can get, 0 for no limit. The disk is asked each time,
// since others may fill it at any moment. a.mu is held.
func (a *admission) most() int64 {
	limit := a.maxBytes
	atMost := func(free int64) {
		if all := int64(a.bytes.Load()) + free/int64(a.of) + 1; limit == 0 || limit > all {
			limit = all
		}
	}
	if a.free == nil {
		if account := &a.reserve.account; account.limited {
			atMost(account.free - int64(a.written.Load()-account.written))
		}
		return limit
	}
	if free, err := a.free(); err == nil || errors.Is(err, driver.ErrFull) {
		atMost(free)
	}
	return limit
}

// syncAge is how old what the server has said may be when a job is added.
const syncAge = 500 * time.Millisecond

// admit returns ErrFull in the last fifth. It asks the server twice a second at most, and before
// that last fifth more often, and adds up what is written from here in between.
func (a *admission) admit(ctx context.Context) error {
	age := syncAge
	if a.pressed() {
		age = 20 * time.Millisecond
	}
	if a.age() > age {
		if err := a.syncRoom(ctx); err != nil {
			return err
		}
	}
	if err := a.wrongSettings(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reserve.used {
		return fmt.Errorf("%w: what is free is for the ends of jobs", driver.ErrFull)
	}
	if most := a.most(); most > 0 && a.bytes.Load() >= uint64(most-most/5) {
		return fmt.Errorf("%w: %d of %d bytes, a fifth of which is for the ends of jobs", driver.ErrFull, a.bytes.Load(), most)
	}
	return nil
}

// pressed reports whether seven tenths are full.
func (a *admission) pressed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := a.most()
	return a.reserve.isFull() || most > 0 && a.bytes.Load() >= uint64(most/10*7)
}

// isFull reports whether jobs that are there have taken the reserve, or the server has no room.
func (a *admission) isFull() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reserve.isFull()
}
