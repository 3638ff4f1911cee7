package debug

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Queue is what the handler asks of a queue of durable jobs: two methods that only read.
// Module durable depends on this module and not the other way round, so the handler does
// not know its queues: page.Queue of durable/page makes a Queue of one. Anything else that
// keeps jobs may implement it too.
//
// If a Queue has a method URL() string as well, and that returns no empty string, its name on
// the page leads there, as to the page of durable/admin, where jobs are listed and changed.
type Queue interface {
	// Stats returns what one process has counted. It is called for each event, so it must
	// return at once and ask nobody.
	Stats() QueueStats

	// Count counts what is kept. It may take long, and may read all of a store: the handler
	// calls it in a goroutine of its own, one call at a time, and has calls take at most
	// 2 % of the time. When ctx ends, Count returns an error, with what it has counted so
	// far.
	Count(ctx context.Context) (QueueCounts, error)
}

// QueueStats is what a process does for a queue, and has done since it opened it.
type QueueStats struct {
	Held    int64 // jobs that it has fetched and not finished
	Claimed int64 // a part of these: claimed, and not begun
	Running int64 // a part of these: their handlers run

	Attempts  int64 // handlers that have begun
	Done      int64 // attempts that ended well
	Failed    int64 // attempts that are followed by another
	Dead      int64 // jobs that died in this process
	LeaseLost int64 // attempts that another process has taken over

	Unhandled []UnhandledKind // the longest due first; must not be changed after the call

	Lateness timingwheel.Histogram // of the beginning of attempts
}

// UnhandledKind is a kind of jobs that are due, and that no process runs.
type UnhandledKind struct {
	Kind    string
	Overdue time.Duration // of the job that is longest due
}

// QueueCounts is how many jobs are kept, whichever process works on them.
type QueueCounts struct {
	Waiting, Running, Dead int64
}

const (
	countPause   = 2 * time.Second  // at least so long between two counts
	countTimeout = 10 * time.Second // then a count ends with what it has
)

// queue is a Queue with its name, and the last count of it.
type queue struct {
	name  string
	queue Queue
	added time.Time

	mu       sync.Mutex
	history  history // guarded by mu
	counted  *tally  // guarded by mu; nil before the first count has ended
	counting bool    // guarded by mu: a goroutine counts
	costs    costs   // guarded by mu
}

func (q *queue) label() string { return q.name }

// tally is what a count has found. It does not change any more.
type tally struct {
	QueueCounts
	Took  time.Duration
	Error string // if not empty, there may be more than was counted

	at time.Time // when it ended
}

// queueFigures is what a queue does at one moment.
type queueFigures struct {
	Name   string        `json:"name"`
	URL    string        `json:"url,omitempty"` // of a page of its own
	Age    time.Duration `json:"age"`           // since it was added; the page takes rates by it
	Stats  QueueStats    `json:"stats"`
	Recent recent        `json:"recent"`
	Counts *tally        `json:"counts"`   // null until the first count has ended
	Since  time.Duration `json:"countAge"` // since then
}

// figures asks for the Stats, which are cheap, and begins a count if it is time for one.
func (q *queue) figures() queueFigures {
	s := q.queue.Stats()
	url := ""
	if p, ok := q.queue.(interface{ URL() string }); ok {
		url = p.URL()
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	f := queueFigures{Name: q.name, URL: url, Age: now.Sub(q.added), Stats: s, Recent: q.history.add(now, s.Lateness), Counts: q.counted}
	due := q.counted == nil
	if q.counted != nil {
		f.Since = now.Sub(q.counted.at)
		due = f.Since >= max(countPause, q.costs.pause())
	}
	if due && !q.counting {
		q.counting = true
		go q.count()
	}
	return f
}

// count is the goroutine of one count. It ends when the count does, so that none is left
// soon after nobody watches any more.
func (q *queue) count() {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	start := time.Now()
	c := &tally{}
	var err error
	c.QueueCounts, err = q.queue.Count(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		c.Error = fmt.Sprintf("it takes longer than %v", countTimeout)
	case err != nil:
		c.Error = validName(err.Error())
	}
	c.at = time.Now()
	c.Took = c.at.Sub(start)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counted, q.counting = c, false
	q.costs.add(c.Took)
}

// figuresOfQueues asks each of them. It returns no nil, which JSON would not write as a
// list.
func figuresOfQueues(queues []*queue) []queueFigures {
	all := make([]queueFigures, 0, len(queues))
	for _, q := range queues {
		all = append(all, q.figures())
	}
	return all
}

// writeQueue writes some lines for a reader at a terminal, with the name quoted as that of
// a wheel is.
func writeQueue(out io.Writer, q queueFigures) {
	s := &q.Stats
	fmt.Fprintf(out, "queue %q: ", q.Name)
	switch c := q.Counts; {
	case c == nil:
		fmt.Fprintln(out, "not counted yet; ask again")
	case c.Error != "":
		fmt.Fprintf(out, "at least %d waiting, %d running, %d dead, counted %v ago, not all: %q\n", c.Waiting, c.Running, c.Dead, short(q.Since), c.Error)
	default:
		fmt.Fprintf(out, "%d waiting, %d running, %d dead, counted %v ago\n", c.Waiting, c.Running, c.Dead, short(q.Since))
	}
	fmt.Fprintf(out, "  this process: %d held, %d of these claimed, %d handlers; so far %d attempts, %d done, %d failed, %d died, %d leases lost\n",
		s.Held, s.Claimed, s.Running, s.Attempts, s.Done, s.Failed, s.Dead, s.LeaseLost)
	for _, u := range s.Unhandled {
		fmt.Fprintf(out, "  nobody runs %q: overdue by %v\n", u.Kind, short(u.Overdue))
	}
	fmt.Fprintf(out, "  lateness since the start: %s\n", lateness(&s.Lateness))
	if q.Recent.Span > 0 {
		fmt.Fprintf(out, "  lateness of the last %v: %s\n", q.Recent.Span.Round(time.Second/10), lateness(&q.Recent.Lateness))
	}
}
