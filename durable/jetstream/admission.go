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

// accountLimit is the limit of an account, as far as it concerns a stream.
type accountLimit struct {
	limited bool   // and the user may ask
	free    int64  // bytes of one replica, as of when it was read
	written uint64 // stream.written then: what was written from here since takes of it
}

// syncRoom is sync before an Add: it also reads how much the account may still store.
func (a *admission) syncRoom(ctx context.Context) error {
	if err := a.sync(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	a.reserve.refused = false
	limited := a.reserve.account.limited
	a.mu.Unlock()
	if limited {
		_ = a.readAccount(ctx)
	}
	return nil
}

// readAccount reads how much the account may still store. A user that may not ask is not told. The error is
// that of an account that may have too few consumers.
func (a *admission) readAccount(ctx context.Context) error {
	type tier struct {
		Used   int64 `json:"storage"`
		Limits struct {
			Most      int64 `json:"max_storage"`
			Consumers int   `json:"max_consumers"`
		} `json:"limits"`
	}
	var info struct {
		tier
		Tiers map[string]tier `json:"tiers"`
	}
	info.Limits.Most = -1
	if err := a.ask(ctx, "INFO", nil, &info); err != nil {
		if isDenial(err) {
			a.mu.Lock()
			a.reserve.account = accountLimit{}
			a.mu.Unlock()
		}
		return nil
	}
	copies := int64(max(1, a.replicas))
	of, most := info.tier, info.tier.Limits.Most
	if t, ok := info.Tiers[fmt.Sprintf("R%d", copies)]; ok { // its limit is for one copy, and what it uses for all
		of, most = t, t.Limits.Most
		if most > 0 {
			most *= copies
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserve.account = accountLimit{limited: most > 0, free: max(0, most-of.Used) / copies, written: a.written.Load()}
	return limitConsumers(of.Limits.Consumers)
}

// reserve is what is known of it. admission.mu guards it.
type reserve struct {
	is, used bool          // as the last poll has shown; neither: there never was one
	refused  bool          // the server has refused the last Add
	tried    time.Time     // when it was stored, or was to be, the last time
	pause    time.Duration // until the next try
	account  accountLimit
}

// isFull reports whether jobs that are there have taken the reserve, or the server has no room. admission.mu is held.
func (r *reserve) isFull() bool { return r.used || r.refused }

// seen notes the messages of a poll.
func (r *reserve) seen(flag, pieces uint64) { r.is, r.used = flag > 0, flag == 0 && pieces > 0 }

// fullFor is in the ctx of what may not use the reserve.
type fullFor struct{}

func withoutReserve(ctx context.Context) context.Context {
	return context.WithValue(ctx, fullFor{}, true)
}
