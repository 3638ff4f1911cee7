package postgres

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// noticeEvery is the least time between two notices that one process sends. A freed permit
// stays unused until its notice arrives, so the time is shorter than announceEvery: with 20 ms,
// and handlers that take as long, a third of the permits was unused.
const noticeEvery = 2 * time.Millisecond

// notices delivers each notice to the workers of this engine at once, and to those of other processes
// by NOTIFY: flowControl, freed and canceled are what is still to be sent. What waits together is
// sent as one text, so a flood of notices costs no more than one each noticeEvery.
//
// A worker's Notify is called on a goroutine of its own, never under mu. No job depends on a
// notice: one that is lost delays a worker, as sendAll says.
type notices struct {
	db   *db
	some chan struct{} // of one element

	mu          sync.Mutex // guards what follows
	flowControl bool
	freed       map[driver.LimitKey]bool
	canceled    []driver.Ref
	workers     map[*func(driver.Notice)]bool // the Notify of each worker of this engine
}

func newNotices(d *db) *notices {
	return &notices{db: d, some: make(chan struct{}, 1), freed: map[driver.LimitKey]bool{}, workers: map[*func(driver.Notice)]bool{}}
}

// send delivers a notice to the workers of this engine, and soon to all others.
func (n *notices) send(notice driver.Notice) {
	n.deliver(notice)
	n.mu.Lock()
	n.flowControl = n.flowControl || notice.FlowControl
	for _, p := range notice.Freed {
		n.freed[p] = true
	}
	n.canceled = append(n.canceled, notice.Canceled...)
	n.mu.Unlock()
	select {
	case n.some <- struct{}{}:
	default:
	}
}

// deliver delivers a notice to the workers of this engine.
func (n *notices) deliver(notice driver.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for notify := range n.workers {
		go (*notify)(notice) // the caller may hold a lock that it takes
	}
}

// subscribe adds a function, which may be nil, to those that get notices, until the function that it returns is called.
func (n *notices) subscribe(notify func(driver.Notice)) func() {
	if notify == nil {
		return func() {}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.workers[&notify] = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.workers, &notify)
	}
}

// sentNotice is the form in which a notice is sent.
type sentNotice struct {
	FlowControl bool              `json:"flow_control,omitempty"`
	Freed       []driver.LimitKey `json:"freed,omitempty"`
	Canceled    []driver.Ref      `json:"canceled,omitempty"`
}

// take returns the text to send next: as much as fits one notification; empty if there is nothing.
func (n *notices) take() (text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.flowControl && len(n.canceled) == 0 && len(n.freed) == 0 {
		return ""
	}
	t := sentNotice{FlowControl: n.flowControl}
	const each = 400 // bytes, at most: a Lane of 128, quoted
	room := maxNotification/each - 1
	k := min(len(n.canceled), room)
	t.Canceled, n.canceled = n.canceled[:k], n.canceled[k:]
	for p := range n.freed {
		if len(t.Freed)+k >= room {
			break
		}
		t.Freed = append(t.Freed, p)
		delete(n.freed, p)
	}
	n.flowControl = false
	var body strings.Builder
	to := json.NewEncoder(&body)
	to.SetEscapeHTML(false) // escaped, a lane of < would be six times as long
	if err := to.Encode(struct {
		Notice sentNotice `json:"notice"`
	}{t}); err != nil {
		panic(err) // strings and numbers
	}
	return body.String()
}

// decodeNotice returns the notice in a notification, if it is one.
func decodeNotice(text string) (n driver.Notice, ok bool) {
	var body struct {
		Notice *sentNotice `json:"notice"`
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil || body.Notice == nil {
		return n, false
	}
	return driver.Notice{FlowControl: body.Notice.FlowControl, Freed: body.Notice.Freed, Canceled: body.Notice.Canceled}, true
}

// sendAll sends notices to other processes, until closing ends: then it sends the rest at once, and ends. If
// one is lost, the worker learns of limits, pauses and permits within a second, and of a cancel with its
// next heartbeat.
func (n *notices) sendAll(closing context.Context) {
	for last := false; !last; {
		select {
		case <-closing.Done():
			last = true
		case <-n.some:
		}
		for text := n.take(); text != ""; text = n.take() {
			ctx, cancel := context.WithTimeout(n.db.closed, time.Second)
			_ = n.db.do(ctx, n.db.notify, []any{n.db.schema, text}, relaxed)
			cancel()
			sleep(closing, noticeEvery)
		}
	}
}
