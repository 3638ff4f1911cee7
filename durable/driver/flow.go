package driver

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/unread"
)

// Limit bounds how many jobs run at once, and how many begin in a second, in all
// processes together.
type Limit struct {
	// Kind is the kind that the limit covers; empty for all kinds.
	Kind string `json:"kind,omitempty"`

	// PerLane counts each value of [Job.Lane] separately. The limit then does not cover
	// jobs without a lane.
	PerLane bool `json:"perLane,omitempty"`

	// Running is how many may run at once, at most 1<<20; 0 means any number. A Limit needs
	// Running or Rate.
	Running int `json:"running,omitempty"`

	// Rate is how many may be claimed in a second; 0 means any number. In any t seconds,
	// by the engine's clock, at most Burst + Rate * t jobs are claimed. A handler begins
	// when its claim is stored, and its token has come. If a process stands still between
	// the two, or its machine is overloaded, its handlers begin together: with delays of
	// up to d, at most Burst + Rate * (t + d) begin within t seconds. With a Rate the
	// Burst is at least 1, and comes back within a year: Burst / Rate is at most that
	// many seconds. A clock that steps forward brings the Burst back once, and one that
	// steps back lets one job more begin; two clocks that alternate do no more than that.
	// After a step back the tokens of the Burst that had come may be counted as taken,
	// also those of a limit that was idle: they come again one by one, by the Rate.
	// With three clocks that are far apart nothing is promised.
	Rate  float64 `json:"rate,omitempty"`
	Burst int     `json:"burst,omitempty"`
}

// Pausable selects jobs to pause: a kind, a lane, or a lane of a kind. The zero value
// selects all jobs of the queue.
type Pausable struct {
	Kind string `json:"kind,omitempty"`
	Lane string `json:"lane,omitempty"`
}

// String returns the selection in words, such as `lane "eu" of kind "mail"`.
func (p Pausable) String() string {
	switch {
	case p == Pausable{}:
		return "the whole queue"
	case p.Kind == "":
		return fmt.Sprintf("lane %q", p.Lane)
	case p.Lane == "":
		return fmt.Sprintf("kind %q", p.Kind)
	}
	return fmt.Sprintf("lane %q of kind %q", p.Lane, p.Kind)
}

// Pause is a pause of a queue.
type Pause struct {
	Pausable
	Since time.Time `json:"since,omitzero"` // When it was set, by the engine's clock.
	Until time.Time `json:"until,omitzero"` // When it ends; zero: it lasts until Resume.
}

// Forever is the rest of a pause without an end.
const Forever = time.Duration(math.MaxInt64)

// Rest returns how long the pause lasts after now: 0 if it has ended, [Forever] without an end. If
// now is more than RetryInterval before Since, the engine's clock was set back, and the pause counts
// as ended. So a clock that is set back once extends a pause by at most its length and RetryInterval.
// A smaller difference may be one between the clocks of two processes.
func (p *Pause) Rest(now time.Time) time.Duration {
	switch {
	case p.Until.IsZero():
		return Forever
	case now.Before(p.Since.Add(-RetryInterval)):
		return 0
	}
	return max(0, p.Until.Sub(now))
}

// FlowControl has the limits and pauses of a queue: one document, which an engine keeps as the text
// that Encode returns, with its revision. It is immutable: a change makes a new one. A nil
// *FlowControl has no limits, no pauses, and revision 0.
type FlowControl struct {
	revision int64
	limits   []*StoredLimit // by name
	pauses   []Pause        // one for each Pausable

	byKind map[string][]*StoredLimit
	paused map[Pausable]*Pause
	unread unread.Fields
}

// StoredLimit is a limit as an engine keeps it.
type StoredLimit struct {
	Name string `json:"name"`

	// ID is the revision of the FlowControl in which it was made. If a limit is replaced
	// by one that covers other jobs, the new one has another ID, and its counts begin at
	// zero.
	ID int64 `json:"id"`
	Limit

	unread unread.Fields
}

// MarshalJSON writes a limit, with the fields that UnmarshalJSON did not know.
func (r *StoredLimit) MarshalJSON() ([]byte, error) {
	type plain StoredLimit
	text, err := json.Marshal((*plain)(r))
	return r.unread.AddTo(text), err
}

// UnmarshalJSON reads a limit.
func (r *StoredLimit) UnmarshalJSON(text []byte) error {
	type plain StoredLimit
	if err := json.Unmarshal(text, (*plain)(r)); err != nil {
		return err
	}
	r.unread = unread.Of[plain](text)
	return nil
}

// flowControlText is how a FlowControl is stored.
type flowControlText struct {
	Limits []*StoredLimit `json:"limits,omitempty"`
	Pauses []Pause        `json:"pauses,omitempty"`
}

// NewFlowControl returns a FlowControl of limits, sorted by their names, and of pauses. It keeps
// the slices.
func NewFlowControl(revision int64, limits []*StoredLimit, pauses []Pause) *FlowControl {
	r := &FlowControl{revision: revision, limits: limits, pauses: pauses, byKind: map[string][]*StoredLimit{}, paused: map[Pausable]*Pause{}}
	for _, l := range limits {
		r.byKind[l.Kind] = append(r.byKind[l.Kind], l)
	}
	for i := range pauses {
		r.paused[pauses[i].Pausable] = &pauses[i]
	}
	return r
}

// Change returns a FlowControl that replaces r. It has the fields of a later version that
// DecodeFlowControl has found beside the limits and pauses of r.
func (r *FlowControl) Change(revision int64, limits []*StoredLimit, pauses []Pause) *FlowControl {
	next := NewFlowControl(revision, limits, pauses)
	if r != nil {
		next.unread = r.unread
	}
	return next
}

// DecodeFlowControl reads what Encode has written. "" has no limits and no pauses.
func DecodeFlowControl(revision int64, text string) (*FlowControl, error) {
	var t flowControlText
	if text != "" {
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return nil, fmt.Errorf("%w: cannot read the limits and pauses: %w", ErrStorage, err)
		}
	}
	r := NewFlowControl(revision, t.Limits, t.Pauses)
	r.unread = unread.Of[flowControlText]([]byte(text))
	return r, nil
}

// Encode returns the limits and pauses as text, without the revision.
func (r *FlowControl) Encode() string {
	if r == nil {
		return ""
	}
	text, err := json.Marshal(flowControlText{r.limits, r.pauses})
	if err != nil {
		panic(err) // strings and finite numbers
	}
	return string(r.unread.AddTo(text))
}

// Revision grows with each change; 0: there never was a limit or a pause.
func (r *FlowControl) Revision() int64 {
	if r == nil {
		return 0
	}
	return r.revision
}

// Limits returns the limits by name. The slice must not be changed.
func (r *FlowControl) Limits() []*StoredLimit {
	if r == nil {
		return nil
	}
	return r.limits
}

// Pauses returns the pauses, also those that have ended and are not removed yet. The slice must not
// be changed.
func (r *FlowControl) Pauses() []Pause {
	if r == nil {
		return nil
	}
	return r.pauses
}

// Covering returns the limits that cover a job, and for how long it is paused from now on, by the
// engine's clock: 0 if it is not, [Forever] for a pause without an end. For a job that no limit
// covers, the limits are nil, and the cost is a few reads of maps.
func (r *FlowControl) Covering(kind, lane string, now time.Time) (limits []*StoredLimit, paused time.Duration) {
	if r == nil || len(r.limits)+len(r.pauses) == 0 {
		return nil, 0
	}
	for _, some := range [2][]*StoredLimit{r.byKind[""], r.byKind[kind]} {
		for _, l := range some {
			if !l.PerLane || lane != "" {
				limits = append(limits, l)
			}
		}
	}
	if len(r.pauses) == 0 {
		return limits, 0
	}
	for i, what := range [4]Pausable{{}, {Kind: kind}, {Lane: lane}, {Kind: kind, Lane: lane}} {
		if p := r.paused[what]; p != nil && (i < 2 || lane != "") {
			paused = max(paused, p.Rest(now))
		}
	}
	return limits, paused
}

// Paused is the ClaimResult of a job that is paused for some time and claimed exactly.
func Paused(rest time.Duration) ClaimResult {
	return ClaimResult{Status: Throttled, After: min(rest, RetryInterval)}
}

// LimitKey is the key of a Counter: a limit, or one lane of a limit PerLane.
type LimitKey struct {
	Limit int64  `json:"limit"`          // The ID of the StoredLimit.
	Lane  string `json:"lane,omitempty"` // Empty if the limit is not PerLane.
}

// Key returns the key of the Counter for a job of the lane.
func (r *StoredLimit) Key(lane string) LimitKey {
	if !r.PerLane {
		lane = ""
	}
	return LimitKey{r.ID, lane}
}

// Counter is the state of a LimitKey. The zero Counter is that of a LimitKey where no job
// has run. An engine may forget an idle one: no permit is taken, and all tokens are back.
// See IsIdle.
type Counter struct {
	Taken int // Permits taken, by jobs that are claimed and have not ended.

	// TAT is the theoretical arrival time of the generic cell rate algorithm: when all of a Burst
	// will be there again, in nanoseconds since 1970 by the engine's clock.
	TAT int64

	// TATBehind is the same by a clock that is far behind the one that TAT is by: of another server,
	// or of one that was set back. Each token counts in both, so that two clocks that alternate
	// give no token twice. 0: there is no such clock.
	TATBehind int64

	// ReservedFor is the worker that was refused a permit and has the next that comes
	// free, until ReservedUntil passes without another call, in nanoseconds since 1970.
	// Without the reservation the worker whose job has ended would always take the permit
	// again. LastHolder is the worker that took the last permit: others go before it.
	ReservedFor   string
	ReservedUntil int64
	LastHolder    string
}

// IsIdle reports whether the Counter is equivalent to a zero one.
func (c Counter) IsIdle(now time.Time) bool {
	return c.Taken == 0 && c.TAT <= now.UnixNano() && c.ReservedUntil <= now.UnixNano()
}

// Constants that all engines share. Take has the rest of the arithmetic.
const (
	// TokenAhead is how long before its time a claim gets a token, so that its commit has
	// ended by then. Otherwise, with one token at a time, each job would be late by a
	// commit.
	TokenAhead = 100 * time.Millisecond

	// RetryInterval is when a worker retries a claim that was refused for a permit, or for a pause,
	// if nobody notifies it earlier: a safety net.
	RetryInterval = time.Second

	// ReservationLasts is for how long a permit is reserved for a worker that does not retry.
	ReservationLasts = 2 * RetryInterval
)

// Gap is the time between two tokens, 0 if there is no Rate: rounded up to nanoseconds, so
// that the rate is never above.
func (l *StoredLimit) Gap() time.Duration {
	if l.Rate == 0 {
		return 0
	}
	return time.Duration(math.Ceil(1e9 / l.Rate))
}

// Take takes a permit and a token of each limit for one claim of a worker, or none of
// them. Then the ClaimResult is Throttled, with the time of the next claim in After.
// Otherwise it is Granted, and the job must not begin before At. The slices have one
// element for each limit that covers the job. Has marks limits of which the job has a
// permit already, from a claim that never ended and is taken over. Take takes only a
// token of these.
//
// A reservation may change also if the ClaimResult is Throttled. An engine should store
// it, but need not.
func Take(limits []*StoredLimit, counters []*Counter, has []bool, worker string, now time.Time) ClaimResult {
	v := ClaimResult{Status: Granted}
	full := -1
	for i, l := range limits {
		c := counters[i]
		if at := l.NextToken(c, now); at.Sub(now) > TokenAhead {
			if after := at.Sub(now) - TokenAhead; v.Status == Granted || after > v.After {
				v = ClaimResult{Status: Throttled, Limit: l.ID, After: after}
			}
		} else if v.Status == Granted && at.After(now) && at.After(v.At) {
			v.At = at
		}
		if !has[i] && !l.hasPermit(c, worker, now) && full < 0 {
			full = i
		}
	}
	if full >= 0 && v.Status == Granted {
		if c := counters[full]; c.LastHolder != worker && (c.ReservedFor == worker || !c.isReserved(now)) {
			c.ReservedFor, c.ReservedUntil = worker, now.Add(ReservationLasts).UnixNano()
		}
		return ClaimResult{Status: Throttled, Limit: limits[full].ID, After: RetryInterval}
	}
	if v.Status == Throttled {
		return v
	}
	for i, l := range limits {
		c := counters[i]
		if !has[i] {
			c.Taken++
			c.LastHolder = worker
		}
		if c.ReservedFor == worker {
			c.ReservedFor, c.ReservedUntil = "", 0
		}
		if gap := l.Gap(); gap > 0 {
			l.count(c, now, int64(gap))
		}
	}
	return v
}

// TokenValidBy returns a time by which the token of a claim whose answer was lost is
// valid; zero if no limit has a Rate.
func TokenValidBy(limits []*StoredLimit, now time.Time) (at time.Time) {
	for _, l := range limits {
		if l.Rate > 0 {
			at = now.Add(TokenAhead)
		}
	}
	return at
}

// NextToken returns when the next token is there, by a Counter; now, if one is there or the limit
// has no Rate.
func (l *StoredLimit) NextToken(c *Counter, now time.Time) time.Time {
	if l.Rate == 0 {
		return now
	}
	at := time.Unix(0, l.tat(c, now)-l.spare())
	if at.Before(now) {
		return now
	}
	return at
}

// spare is how long the tokens take to come that a Burst has beside one.
func (l *StoredLimit) spare() int64 { return int64(l.Burst-1) * int64(l.Gap()) }

// tooFar reports whether a TAT is further ahead than the claims of two clocks set it: then it is
// by a clock that is ahead of this one, or the limit was changed since. One clock sets it a Gap and
// TokenAhead beyond the Burst, and another may add as much.
func (l *StoredLimit) tooFar(tat, n int64) bool {
	return tat > n+l.spare()+2*int64(l.Gap()+TokenAhead)
}

// tat is when all of a Burst will be there again, but not before now. If TAT and TATBehind are both
// too far ahead, or there is none by this clock, then the next token is there after TokenAhead, for
// which claims may have got the tokens already, and no job waits for a time without a meaning.
func (l *StoredLimit) tat(c *Counter, now time.Time) int64 {
	n := now.UnixNano()
	switch {
	case !l.tooFar(c.TAT, n):
		return max(c.TAT, n)
	case c.TATBehind == 0 || l.tooFar(c.TATBehind, n):
		return n + l.spare() + int64(TokenAhead)
	}
	return max(c.TATBehind, n)
}

// count counts a token by both clocks. Rejected: lowering TAT to the clock that is behind, since
// the other then takes all tokens as there again, at each turn.
func (l *StoredLimit) count(c *Counter, now time.Time, gap int64) {
	n, next := now.UnixNano(), l.tat(c, now)+gap
	switch {
	case l.tooFar(c.TAT, n):
		c.TAT, c.TATBehind = c.TAT+gap, next
	case c.TATBehind > 0:
		c.TAT, c.TATBehind = next, min(c.TATBehind+gap, next)
	default:
		c.TAT = next
	}
}

// isReserved reports whether the next permit is reserved. A reservation does not last longer than
// it is given for, though the clock is set back.
func (c *Counter) isReserved(now time.Time) bool {
	left := c.ReservedUntil - now.UnixNano()
	return left > 0 && left <= int64(2*ReservationLasts)
}

// hasPermit reports whether there is a permit for a worker. One may be reserved for another.
func (l *StoredLimit) hasPermit(c *Counter, worker string, now time.Time) bool {
	if l.Running == 0 {
		return true
	}
	taken := c.Taken
	if c.ReservedFor != "" && c.ReservedFor != worker && c.isReserved(now) {
		taken++
	}
	return taken < l.Running
}

// Usage is a limit's Counter at present.
type Usage struct {
	LimitKey
	Counter
}

// Notice is a message of an engine to a worker, by WorkConfig.Notify.
type Notice struct {
	FlowControl bool       // It was changed, and must be read.
	Freed       []LimitKey // A permit of these may have become free.
	Canceled    []Ref      // CancelRunning was called for these.

	// Deaf: announcements of other processes do not arrive, so Fetch polls more often. Hears: they arrive again.
	Deaf, Hears bool

	// The rest is from the comparison of claims; see Worker.Heartbeat.
	WentBack  string // The store lacks what it had stored, and how the engine knows; once each time.
	Forgotten int    // Claims that the store had of this worker, and the Queue had not. They were handed back.
	Lost      []Ref  // Claims that the Queue has, and the store has not. Finish would return ErrLeaseLost.
	Agreed    bool   // The comparison after one of these has found no difference.
}
