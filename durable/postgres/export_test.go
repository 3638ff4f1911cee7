package postgres

import (
	"context"
	"io/fs"
	"reflect"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// SetPoll changes how often a Fetch of the engine polls without an announcement. Call it before
// the first Fetch.
func (e *Engine) SetPoll(d time.Duration) { e.engine.announcer.pollEvery = d }

// Arrives reports whether a Fetch of the engine knows that notifications arrive.
func (e *Engine) Arrives() bool {
	n := e.engine.announcer.fetches
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.listeners {
		if l.arrival.holds() {
			return true
		}
	}
	return false
}

// Versions makes an engine whose versions of the format are files, in place of those of this package.
func Versions(files fs.FS) Option { return func(c *config) { c.versions = versionsOf(files) } }

// Sweep makes one pass of what workers do all the time.
func (e *Engine) Sweep(ctx context.Context) { sweepPass(ctx, e.engine.db, e.engine.sweep) }

// Expire makes one pass of what workers do now and then.
func (e *Engine) Expire(ctx context.Context) { sweepPass(ctx, e.engine.db, e.engine.expire) }

// Poll polls once, as a worker's Fetch does, for all that is due.
func Poll(ctx context.Context, w driver.Worker) ([]*driver.Delivery, error) {
	f := newFetcher(w.(*worker))
	f.listener = &listener{} // nothing is announced
	return f.poll(ctx, func([]*driver.Delivery) {})
}

// LoseClaim does what a claim does that is neither written nor answered.
func LoseClaim(w driver.Worker, h *driver.Delivery) { w.(*worker).unanswered(handleOf(h)) }

// WorkerID is what a worker is called in the table.
func WorkerID(w driver.Worker) int64 { return w.(*worker).id }

// SweepPermits does what workers do all the time.
func SweepPermits(ctx context.Context, w driver.Worker) { w.(*worker).sweepPermits(ctx) }

// EndHung does what workers do all the time.
func (e *Engine) EndHung(ctx context.Context, after time.Duration) { endHung(ctx, e.engine.db, after) }

// Announcement returns the text of an announcement.
func Announcement(old bool, kinds ...string) string {
	if len(kinds) == 0 {
		return announcement{old: old}.encode("")
	}
	return announcementOf(kinds, old).encode("")
}

// AnnouncementOf returns the text of an announcement of jobs of a kind, sent by an engine. A zero time is unknown.
func AnnouncementOf(by, kind string, due ...time.Time) string {
	a := announcementOf(nil, false)
	for _, at := range due {
		a.add(kind, at)
	}
	return a.encode(by)
}

// Announced returns which engine has sent an announcement, and what a poll for a kind of it reads.
func Announced(text, kind string, now time.Time) (by string, since time.Time, ahead time.Duration) {
	a, by := decodeAnnouncement(text)
	return by, a.kinds[kind].since(now), a.ahead(now)
}

// Announces reports whether an announcement is for a kind.
func Announces(text, kind string) bool {
	n, _ := decodeAnnouncement(text)
	_, of := n.kinds[kind]
	return n.kinds == nil || of
}

// Signaled calls try as Signal does, until it has an answer.
func Signaled(ctx context.Context, try func(busy bool) ([]string, error)) ([]string, error) {
	return signaled(ctx, try)
}

// Hot are the settings of most statements.
const Hot = hot

// Statements returns the statements of a schema, by the names of their fields.
func Statements(schema string) map[string]string {
	all, texts := reflect.ValueOf(newStatements(schema)), map[string]string{}
	for i := range all.NumField() {
		if name := all.Type().Field(i).Name; name != "claimSettings" && name != "tag" {
			texts[name] = all.Field(i).String()
		}
	}
	return texts
}
