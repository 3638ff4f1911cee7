package driver

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Limit is a limit as it is stored: see Limit in package durable.
type Limit struct {
	Kind    string  `json:"kind,omitempty"`    // the jobs that it covers; "": all
	PerLane bool    `json:"perLane,omitempty"` // each lane is counted for itself, and jobs without one not at all
	Running int     `json:"running,omitempty"` // how many may run at once; 0: no bound, and without a Rate none may
	Rate    float64 `json:"rate,omitempty"`    // how many may be claimed in a second; 0: any number
	Burst   int     `json:"burst,omitempty"`   // how many may be claimed at once after a rest; with a Rate at least 1
}

// Pauses reports whether the limit lets nothing run.
func (l Limit) Pauses() bool { return l.Running == 0 && l.Rate == 0 }

// Pausable is what is paused: a kind, a lane, a lane of a kind. The zero value is all jobs of
// the queue.
type Pausable struct {
	Kind string `json:"kind,omitempty"`
	Lane string `json:"lane,omitempty"`
}

// Rules are the limits and pauses of a queue: one document, which an engine keeps as the
// text that Encode returns, with its revision. They are never changed: a change makes new
// ones. A nil *Rules has none, and revision 0.
type Rules struct {
	revision int64
	limits   []*Rule // by name
	pauses   []Pausable

	byKind map[string][]*Rule
	paused map[Pausable]bool
}

// Rule is a limit that is stored.
type Rule struct {
	Name string `json:"name"`

	// ID is the revision of the Rules in which it was made. One that covers other jobs than
	// the one that had the name is another limit: with another ID, and nothing counted.
	ID int64 `json:"id"`
	Limit
}

// rulesText is how Rules are stored.
type rulesText struct {
	Limits []*Rule    `json:"limits,omitempty"`
	Pauses []Pausable `json:"pauses,omitempty"`
}

// NewRules returns rules of limits, which are sorted by their names, and of pauses. It keeps the
// slices.
func NewRules(revision int64, limits []*Rule, pauses []Pausable) *Rules {
	r := &Rules{revision: revision, limits: limits, pauses: pauses, byKind: map[string][]*Rule{}, paused: map[Pausable]bool{}}
	for _, l := range limits {
		r.byKind[l.Kind] = append(r.byKind[l.Kind], l)
	}
	for _, p := range pauses {
		r.paused[p] = true
	}
	return r
}

// DecodeRules reads what Encode has written. "" is no rules.
func DecodeRules(revision int64, text string) (*Rules, error) {
	var t rulesText
	if text != "" {
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return nil, fmt.Errorf("%w: the limits and pauses cannot be read: %w", ErrStorage, err)
		}
	}
	return NewRules(revision, t.Limits, t.Pauses), nil
}

// Encode returns the rules as text, without the revision.
func (r *Rules) Encode() string {
	if r == nil {
		return ""
	}
	text, err := json.Marshal(rulesText{r.limits, r.pauses})
	if err != nil {
		panic(err) // strings and finite numbers
	}
	return string(text)
}

// Revision grows with each change; 0: there never was a rule.
func (r *Rules) Revision() int64 {
	if r == nil {
		return 0
	}
	return r.revision
}

// Limits returns the limits by name. The slice must not be changed.
func (r *Rules) Limits() []*Rule {
	if r == nil {
		return nil
	}
	return r.limits
}

// Pauses returns what is paused. The slice must not be changed.
func (r *Rules) Pauses() []Pausable {
	if r == nil {
		return nil
	}
	return r.pauses
}

// Covering returns the limits that cover a job, and whether it is paused. For a job that
// no rule covers, the limits are nil and it costs a few looks at maps.
func (r *Rules) Covering(kind, lane string) (limits []*Rule, paused bool) {
	if r == nil || len(r.limits)+len(r.pauses) == 0 {
		return nil, false
	}
	for _, some := range [2][]*Rule{r.byKind[""], r.byKind[kind]} {
		for _, l := range some {
			if !l.PerLane || lane != "" {
				limits = append(limits, l)
			}
		}
	}
	paused = len(r.pauses) > 0 && (r.paused[Pausable{}] || r.paused[Pausable{Kind: kind}] ||
		lane != "" && (r.paused[Pausable{Lane: lane}] || r.paused[Pausable{Kind: kind, Lane: lane}]))
	return limits, paused
}

// LimitKey says what is counted: a limit, or of a limit PerLane one lane.
type LimitKey struct {
	Limit int64  // the ID of the Rule
	Lane  string // "": the limit is not PerLane
}

// Key returns where a job of the lane is counted.
func (r *Rule) Key(lane string) LimitKey {
	if !r.PerLane {
		lane = ""
	}
	return LimitKey{r.ID, lane}
}

// Counter is what an engine keeps of a LimitKey. Zero is that of a LimitKey where nothing has run.
// One without places taken whose tokens are all back may be forgotten: see IsIdle.
type Counter struct {
	Taken int `json:"taken,omitempty"` // places: jobs that are claimed, and have not ended

	// Tokens is when all of a Burst will be there again, in nanoseconds since 1970 by the
	// engine's clock: the theoretical arrival time of the generic cell rate algorithm.
	Tokens int64 `json:"tokens,omitempty"`

	// Turn is the worker that was refused a place and has the next that comes free, until
	// Until passes without another call, in nanoseconds since 1970. Without it the worker
	// whose job has ended would always be the first to have the place again. Last is the
	// worker that took the last place: it has to let others be next.
	Turn  string `json:"turn,omitempty"`
	Until int64  `json:"until,omitempty"`
	Last  string `json:"last,omitempty"`
}

// IsIdle reports whether the Counter says no more than a zero one.
func (c Counter) IsIdle(now time.Time) bool {
	return c.Taken == 0 && c.Tokens <= now.UnixNano() && c.Until <= now.UnixNano()
}

// The engines agree on these. The rest of what a limit means is in Take.
const (
	// TokenAhead is how long before its time a token is given to a claim, so that the commit
	// is over then: with one token at a time, each would be late by a commit else.
	TokenAhead = 100 * time.Millisecond

	// AskAgain is when a claim that was refused for a place, or for a pause, is asked again if
	// nobody tells the worker earlier: a safety net.
	AskAgain = time.Second

	// TurnLasts is for how long a Turn is kept for a worker that does not ask again.
	TurnLasts = 2 * AskAgain
)

// Gap is the time between two tokens, 0 if there is no Rate: rounded up to nanoseconds, so
// that the rate is never above.
func (l Limit) Gap() time.Duration {
	if l.Rate == 0 {
		return 0
	}
	return time.Duration(math.Ceil(1e9 / l.Rate))
}

// Take takes a place and a token of each limit for one claim of a worker, or nothing: then
// the ClaimResult is Throttled, with when to ask again. Else it is Granted, and its At is not before
// which moment the job may begin. The slices have one element for each limit that covers
// the job. Has says where the job has a place already: that of a claim which never ended,
// and is taken over. There it takes a token alone.
//
// Also where the ClaimResult is Throttled a Turn may have changed. To store it is of use, and not
// to is no harm.
func Take(limits []*Rule, counters []*Counter, has []bool, worker string, now time.Time) ClaimResult {
	v := ClaimResult{Status: Granted}
	full := -1
	for i, l := range limits {
		c := counters[i]
		if at := l.Token(c, now); at.Sub(now) > TokenAhead {
			if after := at.Sub(now) - TokenAhead; v.Status == Granted || after > v.After {
				v = ClaimResult{Status: Throttled, Limit: l.ID, After: after}
			}
		} else if v.Status == Granted && at.After(now) && at.After(v.At) {
			v.At = at
		}
		if !has[i] && !l.hasPlace(c, worker, now) && full < 0 {
			full = i
		}
	}
	if full >= 0 && v.Status == Granted {
		if c := counters[full]; c.Last != worker && (c.Turn == worker || !c.isTurn(now)) {
			c.Turn, c.Until = worker, now.Add(TurnLasts).UnixNano()
		}
		return ClaimResult{Status: Throttled, Limit: limits[full].ID, After: AskAgain}
	}
	if v.Status == Throttled {
		return v
	}
	for i, l := range limits {
		c := counters[i]
		if !has[i] {
			c.Taken++
			c.Last = worker
		}
		if c.Turn == worker {
			c.Turn, c.Until = "", 0
		}
		if gap := l.Gap(); gap > 0 {
			c.Tokens = l.tokens(c, now) + int64(gap)
		}
	}
	return v
}

// TokenBy returns when a token has come for certain that a claim took before, and whose time is
// not known, since the answer was lost; zero if none of the limits has a Rate.
func TokenBy(limits []*Rule, now time.Time) (at time.Time) {
	for _, l := range limits {
		if l.Rate > 0 {
			at = now.Add(TokenAhead)
		}
	}
	return at
}

// Token returns when the next token is there, as a Counter says; now, if one is or there is no
// Rate.
func (l *Rule) Token(c *Counter, now time.Time) time.Time {
	if l.Rate == 0 {
		return now
	}
	at := time.Unix(0, l.tokens(c, now)-l.spare())
	if at.Before(now) {
		return now
	}
	return at
}

// spare is how long the tokens take to come that a Burst has beside one.
func (l *Rule) spare() int64 { return int64(l.Burst-1) * int64(l.Gap()) }

// tokens is when all of a Burst will be there again, but not before now. So far ahead as no
// claim sets it, it is only if the clock was set back, or the limit was changed since: then the
// next token is there now, and what waits does not wait for a time that has no meaning.
func (l *Rule) tokens(c *Counter, now time.Time) int64 {
	n, spare := now.UnixNano(), l.spare()
	if c.Tokens > n+spare+int64(l.Gap()+TokenAhead) {
		return n + spare
	}
	return max(c.Tokens, n)
}

// isTurn reports whether a worker has the next place. A turn does not last for longer than it
// is given for, though the clock is set back.
func (c *Counter) isTurn(now time.Time) bool {
	left := c.Until - now.UnixNano()
	return left > 0 && left <= int64(2*TurnLasts)
}

// hasPlace reports whether there is a place for a worker. One may be another's.
func (l *Rule) hasPlace(c *Counter, worker string, now time.Time) bool {
	if l.Running == 0 {
		return !l.Pauses()
	}
	taken := c.Taken
	if c.Turn != "" && c.Turn != worker && c.isTurn(now) {
		taken++
	}
	return taken < l.Running
}

// Usage is what is counted for a limit now.
type Usage struct {
	LimitKey
	Counter
}

// Notice is what an engine tells a worker, by WorkConfig.Tell.
type Notice struct {
	Rules    bool       // they were changed: they are to be read
	Freed    []LimitKey // a place may have become free there
	Canceled []Ref      // CancelRunning was called for these
}
