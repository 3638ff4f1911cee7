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

// notices delivers notices to the workers of this engine at once, and to those of other
// processes by NOTIFY. FlowControl, freed and canceled are the notices that are still to be sent.
type notices struct {
	some chan struct{} // of one element

	mu          sync.Mutex
	flowControl bool
	freed       map[driver.LimitKey]bool
	canceled    []driver.Ref
	workers     map[*worker]bool // of this engine
}

func newNotices() *notices {
	return &notices{some: make(chan struct{}, 1), freed: map[driver.LimitKey]bool{}, workers: map[*worker]bool{}}
}

// sendNotice delivers a notice to the workers of this engine, and soon to all others.
func (e *engine) sendNotice(n driver.Notice) {
	e.notices.deliver(n)
	e.notices.mu.Lock()
	e.notices.flowControl = e.notices.flowControl || n.FlowControl
	for _, p := range n.Freed {
		e.notices.freed[p] = true
	}
	e.notices.canceled = append(e.notices.canceled, n.Canceled...)
	e.notices.mu.Unlock()
	select {
	case e.notices.some <- struct{}{}:
	default:
	}
}

// deliver delivers a notice to the workers of this engine.
func (n *notices) deliver(notice driver.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.workers {
		go w.c.Notify(notice) // the caller may hold a lock that it takes
	}
}

// subscribe adds a worker to those that get notices, until the function that it returns is called.
func (n *notices) subscribe(w *worker) func() {
	if w.c.Notify == nil {
		return func() {}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.workers[w] = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.workers, w)
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

// sendNotices sends them to other processes. Close has it send what there is at once, and end. If one
// is lost, the worker learns of limits, pauses and permits within a second, and of a cancel with its
// next heartbeat.
func (e *engine) sendNotices() {
	for last := false; !last; {
		select {
		case <-e.closing.Done():
			last = true
		case <-e.notices.some:
		}
		for text := e.notices.take(); text != ""; text = e.notices.take() {
			ctx, cancel := context.WithTimeout(e.closed, time.Second)
			_ = e.do(ctx, e.notify, []any{e.schema, text}, relaxed)
			cancel()
			sleep(e.closing, noticeEvery)
		}
	}
}
