package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// A near bucket has a subject for each kind, so that a worker is handed what it can run.
// A consumer for each kind would be dear where there are many, and if workers had
// consumers of their own that overlap, a job would be handed out by each of them. So the
// kinds are in bunches: those that the same workers can run have one consumer in each
// bucket, which these workers share. A kind that has a limit somewhere is a bunch by itself,
// so that a worker that has no room for it leaves it alone, and fetches the rest. Those of
// a worker that are too many for that are in bunches of their own kind, never with kinds
// that have no limit: what is put off of them costs no other.
//
// Each beat says which kinds its worker can run, so all workers come to the same bunches.
// Until they have read the same beats a job may be handed out twice; the claim decides.

// tokenOf is what stands for a kind in a subject. It is a hash, since a kind may be any
// text. Two kinds that have the same one are handed out together, and put off by who
// cannot run them.
func tokenOf(kind string) string { return hashed(kind) }

func hashed(text string) string { return hashedTo(text, 5) }

// hashedTo has as many bytes of a hash, as letters and digits where these are a multiple of 5.
func hashedTo(text string, bytes int) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:bytes]))
}

// bunch is what is fetched together.
type bunch struct {
	name   string
	tokens []string // sorted; none: what version 2 has stored, without one
	kinds  []string // of this worker, that these stand for
	mine   bool     // this worker's
}

// old is the bunch of what has no token.
var old = &bunch{mine: true}

// in reports whether there is something of the bunch among the messages of a bucket.
func (b *bunch) in(messages map[string]uint64) bool {
	if b == old {
		return messages[""] > 0
	}
	if len(b.tokens) < len(messages) {
		return slices.ContainsFunc(b.tokens, func(t string) bool { return messages[t] > 0 })
	}
	for t := range messages {
		if _, ok := slices.BinarySearch(b.tokens, t); ok {
			return true
		}
	}
	return false
}

// maxTokens is how many kinds are in a bunch at most: the server compares each of a new
// consumer's filters with each, which takes 100 ms for 1000 of them.
const maxTokens = 200

// maxApart is how many kinds of a worker are bunches by themselves at most: each has a
// consumer in each bucket. Jobs of others that are shut are put off while one of their
// bunch is open.
const maxApart = 64

// life is what a beat says: the tokens of the kinds that its worker can run, sorted, those
// of them that are to be apart, and those that are to be, but are too many: these are
// together, and apart from all others.
type life struct {
	Lease time.Duration `json:"lease"`
	Kinds []string      `json:"kinds,omitempty"`
	Apart []string      `json:"apart,omitempty"`
	Rest  []string      `json:"rest,omitempty"`

	// For listings: the first kinds by their names, and how many there are.
	Names []string `json:"names,omitempty"`
	All   int      `json:"all,omitempty"`
}

// newLife returns what a worker says of itself at first.
func newLife(c durable.WorkConfig) life {
	kinds := c.Kinds.All()
	l := life{Lease: c.Lease, Names: kinds[:min(len(kinds), durable.ShownKinds)], All: len(kinds)}
	for _, kind := range kinds {
		l.Kinds = append(l.Kinds, tokenOf(kind))
		if c.Kinds.Limited(kind) {
			l.setApart(tokenOf(kind))
		}
	}
	l.Kinds = slices.Compact(slices.Sorted(slices.Values(l.Kinds)))
	return l
}

// setApart has a kind be apart, or with the rest, and reports whether it was not before.
func (l *life) setApart(token string) bool {
	into := &l.Rest
	if slices.Contains(l.Apart, token) || slices.Contains(l.Rest, token) {
		return false
	}
	if len(l.Apart) < maxApart {
		into = &l.Apart
	}
	*into = append(slices.Clone(*into), token) // others may read what it was
	return true
}

// bunchesOf puts the kinds of all workers in bunches.
func bunchesOf(lives []life) []*bunch {
	sets := map[string]bool{} // those that are alike count once
	runs, apart, rest := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, l := range lives {
		set := hashed(strings.Join(l.Kinds, " "))
		for _, t := range l.Apart {
			apart[t] = true
		}
		for _, t := range l.Rest {
			rest[t] = true
		}
		if sets[set] {
			continue
		}
		sets[set] = true
		for _, t := range l.Kinds {
			runs[t] += fmt.Sprint(len(sets), " ")
		}
	}
	alike := map[string][]string{}
	for t, who := range runs {
		switch {
		case apart[t]:
			who = t
		case rest[t]:
			who = "rest " + who
		}
		alike[who] = append(alike[who], t)
	}
	var all []*bunch
	for _, tokens := range alike {
		slices.Sort(tokens)
		for some := range slices.Chunk(tokens, maxTokens) {
			all = append(all, &bunch{name: hashed(strings.Join(some, " ")), tokens: some})
		}
	}
	slices.SortFunc(all, func(a, b *bunch) int { return strings.Compare(a.name, b.name) })
	return all
}

// lives returns what the beats of all workers say.
func (p *part) lives(ctx context.Context) (map[string]life, map[string]stored, error) {
	beats, err := p.lasts(ctx, []string{p.workerSubject("*")})
	if err != nil {
		return nil, nil, err
	}
	lives := make(map[string]life, len(beats))
	for subject, m := range beats {
		var l life
		if err := json.Unmarshal(m.Data, &l); err != nil {
			continue // it is none: leaseOf says so
		}
		lives[subject] = l
	}
	return lives, beats, nil
}

// regroupEvery is how often the beats of others are read.
const regroupEvery = 2 * time.Second

// regroup finds out which bunches there are, now and then.
func (f *feed) regroup(ctx context.Context) error {
	own, changed := f.w.own(f.said)
	if !changed && time.Since(f.regrouped) < regroupEvery {
		return nil
	}
	lives, _, err := f.lives(ctx)
	if err != nil {
		return err
	}
	f.regrouped, f.said = time.Now(), own
	lives[f.workerSubject(f.w.c.Name)] = own
	f.w.others.Store(int64(len(lives)) - 1)
	all := bunchesOf(slices.Collect(maps.Values(lives)))
	kinds := map[string][]string{}
	for _, kind := range f.w.c.Kinds.All() {
		t := tokenOf(kind)
		kinds[t] = append(kinds[t], kind)
	}
	for _, b := range all {
		for _, t := range b.tokens {
			b.kinds = append(b.kinds, kinds[t]...)
		}
		b.mine = len(b.kinds) > 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bunches = append(all, old)
	for at, r := range f.near { // those of a bunch that is none any more
		if !slices.ContainsFunc(f.bunches, func(b *bunch) bool { return b.mine && b.name == at.bunch }) {
			r.cancel() // what it has handed out is acknowledged all the same
			delete(f.near, at)
		}
	}
	return nil
}

// own returns what the worker says of itself, and whether that is something else than
// before.
func (w *worker) own(before life) (now life, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now = w.life
	now.Lease = w.c.Lease
	return now, len(now.Kinds) != len(before.Kinds) || len(now.Apart) != len(before.Apart) || len(now.Rest) != len(before.Rest)
}

// setApart has a kind be apart from now on, because it was shut. It reports whether its jobs
// are to be put off, since it is with others that may be open.
func (w *worker) setApart(kind string) (putOff bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.life.setApart(tokenOf(kind)) && slices.Contains(w.life.Rest, tokenOf(kind))
}

// awaitOpen waits until the worker takes jobs of one of a bunch's kinds; false if ctx has
// ended.
func (f *feed) awaitOpen(ctx context.Context, b *bunch) bool {
	for b != old {
		open, changed := f.w.c.Kinds.Open()
		if slices.ContainsFunc(b.kinds, func(kind string) bool { return has(open, kind) }) {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
	return ctx.Err() == nil
}

func has(sorted []string, s string) bool {
	_, ok := slices.BinarySearch(sorted, s)
	return ok
}
