package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// admission decides whether a job still fits: a full store must have room for claims and
// ends, or nothing ends and it stays full. So the last fifth takes no new jobs; and from
// seven tenths on what has ended is removed at once, instead of with its bucket.
//
// Mu guards the reserve and what is known of the account. The stream counts its bytes
// itself, and nothing has to be read together with them: they are an estimate between two
// answers of the server. It decides nothing about a single job.
type admission struct {
	*buckets
	local    bool  // the server is of this process
	maxBytes int64 // 0: none

	makingRoom  sync.Mutex  // held for the whole of makeRoom
	mayNotPurge atomic.Bool // as the server has said

	mu      sync.Mutex
	reserve reserve
}

// readServer reads the server's clock, and how full the stream is. It is the source of the
// partition's clock, so each reading of the time also shows the version, the settings and
// the reserve, by the same request. The clock of a server of this process is that of this
// machine, without a round trip.
func (a *admission) readServer(ctx context.Context) (time.Time, time.Duration, error) {
	info, err := a.readReserve(ctx)
	if err != nil {
		return time.Time{}, 0, err
	}
	if a.local {
		info.Now = time.Now()
	}
	if a.Shift != nil {
		info.Now = a.Shift(info.Leader, info.Now)
	}
	return info.Now, 0, nil
}

// most returns how large the stream can get, 0 for no limit. It reads the disk each time,
// since others may fill it at any moment. For an account it needs a request, so it keeps the
// answer, and subtracts the bytes that were written from here since. Partitions share the free
// room in equal parts. a.mu is held.
func (a *admission) most() int64 {
	account := &a.reserve.account
	free, known := account.free-int64(a.Written.Load()-account.written), account.limited
	if a.Free != nil {
		var err error
		free, err = a.Free()
		known = err == nil || errors.Is(err, driver.ErrFull)
	}
	if !known {
		return a.maxBytes
	}
	all := int64(a.Bytes.Load()) + free/int64(a.of) + 1
	return min(all, cmp.Or(a.maxBytes, all))
}

// syncAge is how old what the server has said may be when a job is added. Between two
// answers other processes add jobs, too, and the last fifth has the room for these.
const syncAge = 500 * time.Millisecond

// admit returns ErrFull in the last fifth. It asks the server twice a second at most, and
// before that last fifth more often, and adds up what is written from here in between.
//
// The polls of a worker of this engine are such answers, too. It reserves nothing: two
// calls may both be admitted where there is room for one, and then the server refuses a
// write.
func (a *admission) admit(ctx context.Context) error {
	age := syncAge
	if a.pressed() {
		age = 20 * time.Millisecond
	}
	if a.Age() > age {
		if err := a.syncRoom(ctx); err != nil {
			return err
		}
	}
	if err := a.WrongSettings(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reserve.used {
		return fmt.Errorf("%w: what is free is for the ends of jobs", driver.ErrFull)
	}
	if most := a.most(); most > 0 && a.Bytes.Load() >= uint64(most-most/5) {
		return fmt.Errorf("%w: %d of %d bytes, a fifth of which is for the ends of jobs", driver.ErrFull, a.Bytes.Load(), most)
	}
	return nil
}

// pressed reports whether seven tenths are full.
//
// From then on jobs that have ended are removed by requests of their own, which below that
// would cost more than the room is worth.
func (a *admission) pressed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := a.most()
	return a.reserve.isFull() || most > 0 && a.Bytes.Load() >= uint64(most/10*7)
}

// isFull is that of the reserve. A finisher asks, since each end is a commit by itself
// then. It is so until a poll shows otherwise, or the next Add asks again.
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
//
// The refusal of an earlier Add is forgotten with that, so that this one tries the server
// again.
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

// readAccount reads how much the account may still store. If the user has no right to read
// that, no limit is known. The error is that of an account that may have too few consumers.
//
// Without an answer the limits that were known stay. Connect calls it once, and Adds only
// where there is a limit. An account that has a limit for each number of replicas has it as
// a tier, R1 or R3.
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
	if err := a.Ask(ctx, "INFO", nil, &info); err != nil {
		if stream.IsDenial(err) {
			a.mu.Lock()
			a.reserve.account = accountLimit{}
			a.mu.Unlock()
		}
		return nil
	}
	copies := int64(max(1, a.Replicas()))
	of := info.tier
	if t, ok := info.Tiers[fmt.Sprintf("R%d", copies)]; ok { // its limit is for one copy, and what it uses for all
		of = t
		of.Limits.Most *= copies
	}
	most := of.Limits.Most
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserve.account = accountLimit{limited: most > 0, free: max(0, most-of.Used) / copies, written: a.Written.Load()}
	return stream.LimitConsumers(of.Limits.Consumers)
}

// reserve is what is known of it, and of the account. admission.mu guards it. Is and used
// may be old by half a second: that delays an end or an Add, and loses none.
type reserve struct {
	is, used bool          // as the last poll has shown; neither: there never was one
	refused  bool          // the server has refused the last Add
	tried    time.Time     // when it was stored, or was to be, the last time
	pause    time.Duration // until the next try
	account  accountLimit
}

// isFull reports whether jobs that are there have taken the reserve, or the server has no
// room. admission.mu is held.
func (r *reserve) isFull() bool { return r.used || r.refused }

// fullFor is in the ctx of what may not use the reserve.
type fullFor struct{}

func withoutReserve(ctx context.Context) context.Context {
	return context.WithValue(ctx, fullFor{}, true)
}

// The reserve is for the limit of the whole server. Other streams fill that, too, and no
// client can query how full it is. The reserve is messages of the subject v.1 that say
// nothing, and one of v.0 that says that they are there. When the server refuses a write
// that is not an Add or a move, v.0 is removed first: nobody adds jobs while it is missing.
// A process that has just seen it may add jobs for another half second. Then the messages
// of v.1 are removed, all but one, and claims and ends have their room. Each end gives back
// more than it takes. Workers store the reserve again as soon as it fits.
//
// A batch that meets the limit in its middle is stored in part, by a server that is alone,
// and not answered. So in a store whose reserve is used each end is a commit by itself. And
// the limit of an account, which a client can query, is kept as MaxBytes is: the last fifth
// takes no jobs.
const (
	reserveBytes = 2 << 20
	reserveShare = 4        // of the room that there is when the stream is made, as one part of so many
	reservePiece = 15 << 10 // of one message: less than stream.LeastMaxPayload
	longestPause = 10 * time.Second
)

// makeRoom removes the reserve when the server has refused a write for want of room, and
// reports whether it has.
//
// It is called by the write that was refused, without a lock. All that were refused at the
// same time wait for the first of them. Commit repeats a write of one group, and ends are
// such in a full store. Between the flag and the rest it waits until no process adds jobs
// any more by an earlier reading of the flag: they would take the room.
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
	if _, err := a.readReserve(ctx); err != nil {
		return false
	}
	a.mu.Lock()
	is := a.reserve.is
	a.reserve.tried, a.reserve.pause = time.Now(), time.Second
	a.mu.Unlock()
	if is {
		if err := a.PurgeAll(ctx, a.reserveFlag()); err != nil {
			a.mayNotPurge.Store(stream.IsDenial(err))
			return false
		}
		a.Wait(ctx, syncAge+stream.AnswerTimeout/50)
	}
	if a.purgePieces(ctx) != nil {
		return false
	}
	_, err := a.readReserve(ctx)
	return err == nil
}

func (a *admission) purgePieces(ctx context.Context) error {
	return a.Ask(ctx, "STREAM.PURGE."+a.Name, map[string]any{"filter": a.reservePieces(), "keep": 1}, nil)
}

// readReserve asks for the server's account of the stream, which says whether the reserve is there.
func (a *admission) readReserve(ctx context.Context) (stream.Info, error) {
	info, err := a.Info(ctx, a.subject("v.*"))
	if err == nil {
		a.mu.Lock()
		a.reserve.is = info.Subjects[a.reserveFlag()] > 0
		a.reserve.used = !a.reserve.is && info.Subjects[a.reservePieces()] > 0
		a.mu.Unlock()
	}
	return info, err
}

// keepReserve stores the reserve if it is not there, and it is time to try. A reserve that does
// not fit is removed again: jobs that are there need the room.
//
// It costs nothing while the reserve is there. Where no limit is known, it stores four
// times as much as it wants, and keeps a quarter of that: so a store that is
// nearly full does not give its last room to a reserve. Each Fetch calls it every
// pollEvery, and Connect for a new stream.
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
	flag := stream.Write{Subject: a.reserveFlag(), Rollup: true, Data: []byte("reserve")} // first: jobs may be added meanwhile
	if a.Write(ctx, flag) != nil {
		return
	}
	size := reserveBytes / reservePiece
	if most > 0 {
		size = int(min(int64(size), most/20/reservePiece))
	} else {
		size = a.storePieces(ctx, size*reserveShare, size) / reserveShare
		_ = a.PurgeAll(ctx, a.reservePieces())
	}
	if a.storePieces(ctx, size, size) < size || size == 0 {
		_ = a.PurgeAll(ctx, a.subject("v.*"))
	}
	_, _ = a.readReserve(ctx)
}

// restoreReserve stores as much as there was, and says so after that.
//
// The flag comes last here: until all of it has its room again, no jobs are added. The
// number is in the one message that a purge has left.
func (a *admission) restoreReserve(ctx context.Context) {
	m, _ := a.Last(ctx, a.reservePieces())
	text, _, _ := strings.Cut(string(m.Data), "\n")
	size, err := strconv.Atoi(text)
	if err != nil {
		return // nor is there one without an answer
	}
	if a.storePieces(ctx, size, size) < size {
		_ = a.purgePieces(ctx)
		return
	}
	if a.Write(ctx, stream.Write{Subject: a.reserveFlag(), Rollup: true, Data: []byte("reserve")}) == nil {
		_, _ = a.readReserve(ctx)
	}
}

// storePieces returns how many of n messages the server has stored, up to the first that it
// refuses. Each begins with the number of those that a reserve has. They are written
// FewWrites at a time, each by itself: an atomic batch that meets the limit in its middle
// would be stored in part.
func (a *admission) storePieces(ctx context.Context, n, size int) (stored int) {
	piece := stream.Group{{Subject: a.reservePieces(), Data: append(fmt.Appendf(nil, "%d\n", size), make([]byte, reservePiece)...)}}
	for refused := false; stored < n && !refused; {
		for _, res := range a.Commit(ctx, slices.Repeat([]stream.Group{piece}, min(n-stored, stream.FewWrites))) {
			if res.Err == nil {
				stored++
			}
			refused = refused || res.Err != nil
		}
	}
	return stored
}
