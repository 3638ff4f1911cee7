package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A limit of n that run at once has n permits. Each is a subject of its own:
//
//	l.<ID of the limit>.<hash of the lane, or ->.<number>
//
// A claim takes a permit that is free, on the condition that it is as it was read, in the commit of
// the status, which names it. A worker that ends a job, hands it back or has it tried again leaves
// its permits in the commit that replaces that status. So there are never more claims under a limit
// than permits, and nobody has to count: ends do not meet one another, as they would if they all
// changed one number.
//
// A worker that dies leaves its claims, and their permits, as they are. A worker that takes a claim
// over keeps its permits. One that looks for a permit in vain frees those claims whose workers are
// no more (sweepPermits), so that a permit does not wait for somebody who can run that job.
//
// The rest of a limit is one message for all of it, or for each lane:
//
//	g.<ID of the limit>.<hash of the lane, or ->
//
// It has when the next token comes, and whose turn it is. The claims of one call write it once, in
// one commit with their statuses, on the condition that it is as it was read if tokens are counted.
// A turn that is lost costs somebody a while, and each refusal costs all.

// quotas are those that were of use lately. It decides nothing: claims and ends write what it
// composes, on conditions. So a wrong idea of a permit costs a try, and lets no job run beyond the
// limit.
//
// Mu guards all, and what is in it, and is held for no request. Claims is taken before mu, and held
// for a whole claim under limits: one call claims at a time, so that those of a process do not
// meet.
type quotas struct {
	*buckets
	claims sync.Mutex

	mu  sync.Mutex
	all map[string]*quota
}

// newQuotas returns quotas of which none is known. When the stream went back all are to be read
// again: the sequences of their permits may be those of other messages.
func newQuotas(b *buckets) *quotas {
	qs := &quotas{buckets: b, all: map[string]*quota{}}
	b.Drop = append(b.Drop, func() {
		qs.mu.Lock()
		defer qs.mu.Unlock()
		for _, q := range qs.all {
			q.read, q.swept = time.Time{}, time.Time{}
		}
	})
	return qs
}

// quota is what is known here of a limit, or of one lane of it. Others may have changed it since:
// the conditions of the writes tell. The invariant is that used is the number of permits with a
// worker; only set changes the two.
type quota struct {
	key     driver.LimitKey
	read    time.Time      // When all of it was read; zero: it is to be read.
	swept   time.Time      // When it was last checked whether those that have the permits live.
	permits map[int]permit // Those that have a message.
	used    int            // Permits that are taken.

	counter driver.Counter // All but Taken, which used is.
	seq     uint64         // Of its message; 0 for none.
}

// permit is a permit as it was read or written last. Its sequence is the condition under which it
// is taken, so a permit that has no message yet has the sequence 0, and is free.
type permit struct {
	seq    uint64   // Of its message.
	at     location // The version of a job that has it.
	worker string   // Of the claim that has it; "": it is free.
}

// quotaOf returns the name of a quota, as it is in subjects. A lane may be any text, so its hash
// stands for it: two lanes with the same 80 bits would share permits.

func quotaOf(p driver.LimitKey) string {
	if p.Lane == "" {
		return itoa(p.Limit) + ".-"
	}
	return itoa(p.Limit) + "." + hashedTo(p.Lane, 10)
}

// permitOf returns the name of a permit, which statuses have, and subjects.
func permitOf(quota string, i int) string { return quota + "." + strconv.Itoa(i) }

// parsePermit returns the quota and the number of a permit. Other text is not an error: a subject
// that a later version has made is not counted.
func parsePermit(s string) (quota string, i int, ok bool) {
	k := strings.LastIndexByte(s, '.')
	if k < 0 {
		return "", 0, false
	}
	i, err := strconv.Atoi(s[k+1:])
	return s[:k], i, err == nil && i >= 0
}

// permitWrite gives a permit to a job. The lane comes last, since it may have spaces, and is for
// listings only: the subject has its hash. The caller sets the condition.
func (qs *quotas) permitWrite(permit string, at location, worker, lane string) stream.Write {
	data := fmt.Appendf(nil, "%d %s %d %s %s", at.bucket, at.id, at.version, worker, lane)
	return stream.Write{Subject: qs.permitSubject(permit), Data: data, Rollup: true}
}

// decodePermit returns a permit, and the lane of the job that has it. A permit that was left has no
// text: its sequence still is the condition under which it is taken next.
func decodePermit(m stream.Message) (s permit, lane string, err error) {
	s.seq = m.Seq
	if len(m.Data) == 0 {
		return s, "", nil
	}
	if f := strings.SplitN(string(m.Data), " ", 5); len(f) == 5 {
		bucket, err := parseInt(f[0])
		version, versionErr := strconv.Atoi(f[2])
		if s.at, s.worker = (location{f[1], bucket, version}), f[3]; err == nil && versionErr == nil {
			return s, f[4], nil
		}
	}
	return s, "", fmt.Errorf("%w: cannot read a permit: %q", driver.ErrStorage, m.Data)
}

// leave returns the writes that leave the permits of a claim, in the commit that replaces its
// status. That the status is as it was says that the permits are its own: so they need no condition
// of their own. A claim without limits has none, and costs nothing here.
func (b *buckets) leave(s status) (g stream.Group) {
	for _, permit := range s.permits {
		g = append(g, grave(b.permitSubject(permit)))
	}
	return g
}

// counterWrite stores the part of a counter that permits do not count. It is of no use any more
// when the last token is there and the turn has ended, so it lasts a minute longer than these: an
// idle limit costs nothing.
func (qs *quotas) counterWrite(q *quota, c driver.Counter, now time.Time) stream.Write {
	lasts := time.Unix(0, max(c.TAT, c.ReservedUntil)).Sub(now)
	// Strings and numbers have no error.
	data, _ := json.Marshal(wireCounter{q.key.Lane, c.TAT, c.TATBehind, c.ReservedFor, c.ReservedUntil, c.LastHolder})
	return stream.Write{Subject: qs.quotaSubject(quotaOf(q.key)), Data: data, Last: stream.Seq(q.seq), Rollup: true, TTL: max(0, lasts) + time.Minute}
}

// wireCounter is a [driver.Counter] as it is stored, without Taken. Lane is for listings. The times
// are in nanoseconds.
type wireCounter struct {
	Lane          string `json:"lane,omitempty"`
	TAT           int64  `json:"tat,omitempty"`
	TATBehind     int64  `json:"behind,omitempty"`
	ReservedFor   string `json:"for,omitempty"`
	ReservedUntil int64  `json:"until,omitempty"`
	LastHolder    string `json:"last,omitempty"`
}

// decodeCounter returns the zero Counter for no message: one that has lapsed says that all tokens
// are there, and that it is nobody's turn.
func decodeCounter(m stream.Message) (c driver.Counter, lane string, err error) {
	if len(m.Data) == 0 {
		return c, "", nil
	}
	var w wireCounter
	if err := json.Unmarshal(m.Data, &w); err != nil {
		return c, "", fmt.Errorf("%w: cannot read the count of a limit: %w", driver.ErrStorage, err)
	}
	return driver.Counter{TAT: w.TAT, TATBehind: w.TATBehind, ReservedFor: w.ReservedFor, ReservedUntil: w.ReservedUntil, LastHolder: w.LastHolder}, w.Lane, nil
}

const (
	// quotaAge is from when on a quota is forgotten that nobody has read: lanes come and go.
	quotaAge = time.Minute
	// believed is for how long a quota is not read again that has nothing free, or that others use,
	// too.
	believed = 20 * time.Millisecond
	// sweepWait is between two checks whether those that have the permits live.
	sweepWait = time.Second
)

// readQuotas reads those that are not known, or that have seemed to be full for a while. Where
// there are other workers it reads the counters of the rest, too: no notice tells whose turn it is.
//
// A worker that is alone knows its own claims and ends, and so reads a quota once in a minute, if
// it has permits left. All quotas of a call cost one request, unless they are many.
//
// Only a call that claims under limits forgets quotas, and it holds the lock claims: so its plan
// finds all that it has read here. Plain claims go through no quotas.
//
// The lock mu is not held during the request. A notice that comes meanwhile may be overwritten by
// an older reading; then a free permit is found a little later.
func (qs *quotas) readQuotas(ctx context.Context, wanted map[string]*driver.StoredLimit, lanes map[string]string, alone bool) error {
	if len(wanted) == 0 {
		return nil
	}
	began := time.Now()
	var all, counted []string
	qs.mu.Lock()
	maps.DeleteFunc(qs.all, func(_ string, q *quota) bool { return began.Sub(q.read) > quotaAge })
	for key, l := range wanted {
		q := qs.all[key]
		switch {
		case q == nil || q.read.IsZero() || l.Running > 0 && q.used >= l.Running && began.Sub(q.read) > believed:
			all = append(all, key)
		case !alone && began.Sub(q.read) > believed:
			counted = append(counted, key)
		}
	}
	qs.mu.Unlock()
	found, err := qs.quotaMessages(ctx, all, counted)
	if err != nil {
		return err
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, key := range all {
		if qs.all[key] == nil {
			qs.all[key] = &quota{key: wanted[key].Key(lanes[key])}
		}
		q := qs.all[key]
		q.read, q.permits, q.used = began, map[int]permit{}, 0
	}
	// The counter of each of them was read: where there is no message it is the zero one.
	for _, key := range append(all, counted...) {
		q := qs.all[key]
		q.seq, q.counter = 0, driver.Counter{}
	}
	for subject, m := range found {
		if err := qs.learnQuota(subject, m); err != nil {
			return err
		}
	}
	return nil
}

// learnQuota notes one message. A quota that was forgotten meanwhile is not made anew. qs.mu is
// held.
func (qs *quotas) learnQuota(subject string, m stream.Message) error {
	if key, ok := strings.CutPrefix(subject, qs.quotaSubject("")); ok {
		c, _, err := decodeCounter(m)
		if q := qs.all[key]; q != nil && err == nil {
			q.seq, q.counter = m.Seq, c
		}
		return err
	}
	s, _, err := decodePermit(m)
	key, i, ok := parsePermit(strings.TrimPrefix(subject, qs.permitSubject("")))
	if q := qs.all[key]; ok && q != nil && err == nil {
		q.set(i, s)
	}
	return err
}

// quotaMessages returns all messages of some quotas, and of others the counter. If that is too much
// for one answer of the server it reads in halves, and where one quota alone is too much, by the
// list of its subjects. So a limit of any number of permits can be read, and a small one costs one
// request.
func (qs *quotas) quotaMessages(ctx context.Context, all, counted []string) (map[string]stream.Message, error) {
	var filters []string
	for _, key := range all {
		filters = append(filters, qs.quotaSubject(key), qs.permitSubject(key+".*"))
	}
	for _, key := range counted {
		filters = append(filters, qs.quotaSubject(key))
	}
	found, err := qs.Lasts(ctx, filters)
	if !errors.Is(err, stream.ErrTooMany) {
		return found, err
	}
	if half := len(all) / 2; half > 0 {
		if found, err = qs.quotaMessages(ctx, all[:half], counted); err != nil {
			return nil, err
		}
		rest, err := qs.quotaMessages(ctx, all[half:], nil)
		maps.Copy(found, rest)
		return found, err
	}
	if found, err = qs.LastsOf(ctx, qs.permitSubject(all[0]+".*")); err != nil {
		return nil, err
	}
	rest, err := qs.quotaMessages(ctx, nil, append(all, counted...))
	maps.Copy(found, rest)
	return found, err
}

// set notes what is known of a permit, and keeps used right.
func (q *quota) set(i int, s permit) {
	if q.permits[i].worker != "" {
		q.used--
	}
	if q.permits[i] = s; s.worker != "" {
		q.used++
	}
}

// freePermit returns a permit that seems to be free and is not chosen; -1 without one. A limit that
// was lowered waits until as many have ended: permits with higher numbers count, and are not given
// again.
//
// One of a rate alone has any number of permits, by which it is known how many run. Which of
// several is taken is random, since others choose at the same time: two that took the first would
// meet each time.
func (q *quota) freePermit(l *driver.StoredLimit, chosen map[int]bool) int {
	used, most := q.used+len(chosen), l.Running
	// Twice as many as run, and some: so a random one is mostly free, and others seldom choose the
	// same.
	if l.Running == 0 && l.Rate > 0 {
		most = 2*used + 64
	}
	if used >= most {
		return -1
	}
	from := rand.N(most)
	for k := range most {
		i := (from + k) % most
		if q.permits[i].worker == "" && !chosen[i] {
			return i
		}
	}
	return -1
}

// learnFreed notes that permits are free, with the sequences of the messages that say so. It is
// called with notices, which may be late: a permit that has a later message is left as it is.
func (qs *quotas) learnFreed(permits map[string]uint64) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for name, at := range permits {
		key, i, ok := parsePermit(name)
		if q := qs.all[key]; ok && q != nil && q.permits[i].seq < at {
			q.set(i, permit{seq: at})
		}
	}
}

// isTaken reports whether a permit is known to be as it was; true if nothing is known of it any
// more.
func (qs *quotas) isTaken(name string, s permit) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	key, i, _ := parsePermit(name)
	q := qs.all[key]
	return q == nil || q.permits[i] == s
}

// names reports whether a status is that of a claim that has a permit. The permit may name the
// job's version still, though the claim has ended: only the status decides.
func (s status) names(permit string) bool {
	return s.fate == claimed && slices.Contains(s.permits, permit)
}

// usage adds the permits and the counters of a limit in a partition, for people. It reads all of
// them anew, and leaves what is known here for claims as it is.
func (qs *quotas) usage(ctx context.Context, id int64, counted map[driver.LimitKey]driver.Counter) error {
	permits, err := qs.LastsOf(ctx, qs.permitSubject(itoa(id)+".>"))
	if err != nil {
		return err
	}
	for _, m := range permits {
		s, lane, err := decodePermit(m)
		if err != nil {
			return err
		}
		if s.worker != "" {
			key := driver.LimitKey{Limit: id, Lane: lane}
			c := counted[key]
			c.Taken++
			counted[key] = c
		}
	}
	counters, err := qs.LastsOf(ctx, qs.quotaSubject(itoa(id)+".>"))
	if err != nil {
		return err
	}
	for _, m := range counters {
		c, lane, err := decodeCounter(m)
		if err != nil {
			return err
		}
		key := driver.LimitKey{Limit: id, Lane: lane}
		c.Taken = counted[key].Taken
		counted[key] = c
	}
	return nil
}

// limitKeyOf returns the key under which a permit of a job of a lane is counted. The permit's name
// says whether its limit is one for all lanes, or for each.
func limitKeyOf(permit, lane string) (driver.LimitKey, bool) {
	limit, rest, _ := strings.Cut(permit, ".")
	id, err := parseInt(limit)
	if strings.HasPrefix(rest, "-.") {
		lane = ""
	}
	return driver.LimitKey{Limit: id, Lane: lane}, err == nil
}

// lanesOf returns the lane of a job for each list of its permits, as far as one of them says it. It
// is for claims whose record is not known here.
func (qs *quotas) lanesOf(ctx context.Context, permits [][]string) ([]string, error) {
	var subjects []string
	for _, name := range slices.Concat(permits...) {
		subjects = append(subjects, qs.permitSubject(name))
	}
	found, err := qs.Lasts(ctx, subjects)
	lanes := make([]string, len(permits))
	for i, names := range permits {
		for _, name := range names {
			if _, lane, _ := decodePermit(found[qs.permitSubject(name)]); lane != "" {
				lanes[i] = lane
			}
		}
	}
	return lanes, err
}
