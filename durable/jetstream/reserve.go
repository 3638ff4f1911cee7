package jetstream

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The reserve is for the limit of the whole server. Other streams fill that, too, and no client can
// query how full it is. The reserve is messages of the subject v.1 that say nothing, and one of v.0
// that says that they are there. When the server refuses a write that is not an Add or a move, v.0
// is removed first: nobody adds jobs while it is missing. A process that has just seen it may add jobs
// for another half second. Then the messages of v.1 are removed, all but one, and claims and ends
// have their room. Each end gives back more than it takes. Workers store the reserve again as soon as it
// fits.
//
// A batch that meets the limit in its middle is stored in part, by a server that is alone, and not
// answered. So in a store whose reserve is used each end is a commit by itself. And the limit
// of an account, which a client can query, is kept as MaxBytes is: the last fifth takes no jobs.
const (
	reserveBytes = 2 << 20
	reserveShare = 4        // of the room that there is when the stream is made, as one part of so many
	reservePiece = 15 << 10 // of one message: less than leastMaxPayload
	longestPause = 10 * time.Second
)

// makeRoom removes the reserve when the server has refused a write for want of room, and reports
// whether it has.
func (a *admission) makeRoom(ctx context.Context) bool {
	a.mu.Lock()
	without, _ := ctx.Value(fullFor{}).(bool)
	a.reserve.refused = a.reserve.refused || without
	a.mu.Unlock()
	if without || a.local || a.mayNotPurge.Load() {
		return false
	}
	a.makingRoom.Lock() // for all that were refused at the same time
	defer a.makingRoom.Unlock()
	if a.readReserve(ctx) != nil {
		return false
	}
	a.mu.Lock()
	is := a.reserve.is
	a.reserve.tried, a.reserve.pause = time.Now(), time.Second
	a.mu.Unlock()
	if is {
		if err := a.purge(ctx, a.reserveFlag(), 0); err != nil {
			a.mayNotPurge.Store(isDenial(err))
			return false
		}
		a.wait(ctx, syncAge+answerTimeout/50)
	}
	return a.purgePieces(ctx) == nil && a.readReserve(ctx) == nil
}

func (a *admission) purgePieces(ctx context.Context) error {
	return a.ask(ctx, "STREAM.PURGE."+a.name, map[string]any{"filter": a.reservePieces(), "keep": 1}, nil)
}

// readReserve reads whether it is there; so does each poll.
func (a *admission) readReserve(ctx context.Context) error {
	info, err := a.info(ctx, a.subject("v.*"))
	if err == nil {
		a.mu.Lock()
		a.reserve.seen(info.subjects[a.reserveFlag()], info.subjects[a.reservePieces()])
		a.mu.Unlock()
	}
	return err
}

// keepReserve stores the reserve if it is not there, and it is time to try. What does not fit is
// removed again: jobs that are there need it.
func (a *admission) keepReserve(ctx context.Context) {
	a.mu.Lock()
	r := &a.reserve
	due, used, most := !r.is && time.Since(r.tried) >= r.pause, r.used, a.most()
	if due {
		r.tried, r.pause = time.Now(), min(max(2*r.pause, time.Second), longestPause)
	}
	a.mu.Unlock()
	if a.local || !due {
		return
	}
	ctx = withoutReserve(ctx)
	if used {
		a.restoreReserve(ctx)
		return
	}
	flag := write{subject: a.reserveFlag(), rollup: true, data: []byte("reserve")} // first: jobs may be added meanwhile
	if a.write(ctx, flag) != nil {
		return
	}
	size := reserveBytes / reservePiece
	if most > 0 {
		size = int(min(int64(size), most/20/reservePiece))
	} else {
		size = a.storePieces(ctx, size*reserveShare, size) / reserveShare
		_ = a.purge(ctx, a.reservePieces(), 0)
	}
	if a.storePieces(ctx, size, size) < size || size == 0 {
		_ = a.purge(ctx, a.subject("v.*"), 0)
	}
	_ = a.readReserve(ctx)
}

// restoreReserve stores as much as there was, and says so after that.
func (a *admission) restoreReserve(ctx context.Context) {
	m, err := a.last(ctx, a.reservePieces())
	if err != nil {
		return
	}
	text, _, _ := strings.Cut(string(m.Data), "\n")
	size, err := strconv.Atoi(text)
	if err != nil {
		return
	}
	if a.storePieces(ctx, size, size) < size {
		_ = a.purgePieces(ctx)
		return
	}
	if a.write(ctx, write{subject: a.reserveFlag(), rollup: true, data: []byte("reserve")}) == nil {
		_ = a.readReserve(ctx)
	}
}

// storePieces returns how many of n messages the server has stored, up to the first that it refuses. Each
// begins with the number of those that a reserve has.
func (a *admission) storePieces(ctx context.Context, n, size int) (stored int) {
	piece := group{{subject: a.reservePieces(), data: append(fmt.Appendf(nil, "%d\n", size), make([]byte, reservePiece)...)}}
	for stored < n {
		results := a.commit(ctx, slices.Repeat([]group{piece}, min(n-stored, fewWrites)))
		for _, res := range results {
			if res.err == nil {
				stored++
			}
		}
		if slices.ContainsFunc(results, func(r result) bool { return r.err != nil }) {
			break
		}
	}
	return stored
}
