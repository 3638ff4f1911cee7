package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// window is how far ahead a job may be due for its insert to be announced. A poll
	// finds later jobs in time, before they are claimed. To look costs as much as
	// there are jobs in the time looked at, handed out or not, so to look at each insert
	// of jobs that are due in seconds would be dear, and of no use.
	window = time.Second

	// announceEvery is how often one process announces at most. A commit with a NOTIFY
	// takes a lock of the whole server: one with each insert would make inserts 20 times
	// slower.
	announceEvery = 20 * time.Millisecond
)

// news is what is announced: that something is due soon, or maybe long due.
type news struct {
	old   bool            // maybe long due
	many  bool            // and maybe many of them; not sent
	kinds map[string]bool // of which kinds; nil: of any
}

// recalled tells a Fetch that deferred jobs are free, since the rules have changed.
var recalled = news{old: true, many: true}

func newsOf(kinds []string, old bool) news { return news{old: old, kinds: setOf(kinds)} }

// add makes one of two.
func (n *news) add(other news) {
	n.old, n.many = n.old || other.old, n.many || other.many
	switch {
	case n.kinds == nil || other.kinds == nil:
		n.kinds = nil
	default:
		maps.Copy(n.kinds, other.kinds)
	}
}

// written is how news are sent.
type written struct {
	Old   bool     `json:"old,omitempty"`
	Kinds []string `json:"kinds,omitempty"` // none: any
}

// maxNews is how long a notification may be: the server takes 7999 bytes.
const maxNews = 7900

func (n news) encode() string {
	text, err := json.Marshal(written{n.old, slices.Sorted(maps.Keys(n.kinds))})
	if err != nil {
		panic(err) // strings
	}
	if len(text) > maxNews {
		return news{old: n.old}.encode()
	}
	return string(text)
}

// decodeNews takes what it cannot read for news of anything.
func decodeNews(text string) news {
	var w written
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return news{old: true}
	}
	if len(w.Kinds) == 0 {
		return news{old: w.Old}
	}
	return newsOf(w.Kinds, w.Old)
}

// bell wakes those who listen to it. Rings that nobody has answered yet are one.
type bell struct {
	mu   sync.Mutex
	ears map[*ear]bool
}

// ear is one who listens.
type ear struct {
	rung chan struct{} // of one element

	mu   sync.Mutex
	some bool // there are news
	news news
}

func newBell() *bell { return &bell{ears: map[*ear]bool{}} }

// listen returns an ear, and how it is taken off.
func (b *bell) listen() (*ear, func()) {
	r := &ear{rung: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ears[r] = true
	return r, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ears, r)
	}
}

// ring wakes all ears.
func (b *bell) ring(n news) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.ears {
		r.ring(n)
	}
}

func (r *ear) ring(n news) {
	r.mu.Lock()
	if r.some {
		r.news.add(n)
	} else {
		r.some, r.news = true, news{n.old, n.many, maps.Clone(n.kinds)}
	}
	r.mu.Unlock()
	select {
	case r.rung <- struct{}{}:
	default:
	}
}

// heard returns the news since the last call, if there are any.
func (r *ear) heard() (news, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	some := r.some
	r.some = false
	return r.news, some
}

// ring wakes the Feeds of this engine, and has the others told.
func (e *Engine) ring(n news) {
	e.feeds.ring(n)
	e.news.ring(n)
}

// announce tells other processes, until Close. They find by polling what cannot be
// announced.
func (e *Engine) announce() {
	ear, off := e.news.listen()
	defer off()
	for {
		select {
		case <-e.closed.Done():
			return
		case <-ear.rung:
		}
		n, ok := ear.heard()
		if !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(e.closed, time.Second)
		_ = e.do(ctx, e.notify, []any{e.schema, n.encode()}, relaxed)
		cancel()
		sleep(e.closed, announceEvery)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// listen rings an ear when another process announces something, until ctx ends. It is a
// connection of its own: one of the pool would be missing there, and may be one that a
// proxy gives to others. When it fails jobs are found by polling.
func (e *Engine) listen(ctx context.Context, r *ear) {
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
		if c, err := e.dial(ctx); err == nil {
			began := time.Now()
			e.hear(ctx, c, r)
			if time.Since(began) > time.Minute {
				pause = 100 * time.Millisecond
			}
			hangUp(c)
		}
		sleep(ctx, pause)
	}
}

// hear passes announcements on until the connection fails.
func (e *Engine) hear(ctx context.Context, c *pgx.Conn, r *ear) {
	if _, err := c.Exec(ctx, "listen "+pgx.Identifier{e.schema}.Sanitize()); err != nil {
		return
	}
	r.ring(news{old: true}) // for what was announced before
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			return
		}
		if notice, ok := decodeNotice(n.Payload); ok {
			e.notices.tell(notice)
			if notice.FlowControl {
				r.ring(recalled)
			}
			continue
		}
		r.ring(decodeNews(n.Payload))
	}
}

// dial opens a connection outside the pool, in the pool's way.
func (e *Engine) dial(ctx context.Context) (*pgx.Conn, error) {
	c := e.pool.Config()
	if c.BeforeConnect != nil {
		if err := c.BeforeConnect(ctx, c.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, c.ConnConfig)
}

func hangUp(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx) // there is nothing to be lost
}
