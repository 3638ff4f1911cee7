package jetstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Limits and pauses are one message of the first partition, r: a line with their revision,
// and then their text. It is replaced on the condition that it is as it was read. Each
// process keeps what it has read last, and looks whether it is still so after each call of
// Claim (applyLimits).
//
// Messages that no stream keeps, below TWA_<queue>, say what others should know at once:
// limits, freed, and cancel.<worker>. All of it is found out without them, too,
// but later.

func parseInt(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

// knownFlowControl is the limits and pauses as they were read.
type knownFlowControl struct {
	flow *driver.FlowControl
	seq  uint64 // of the message; 0 for none
	text []byte // of the message
}

// isOf reports whether the limits and pauses are those of a message. The text counts, too: in a stream that went back
// others may have the same sequence and revision.
func (k *knownFlowControl) isOf(m stored) bool {
	if m.Seq == 0 {
		return k == nil || k.seq == 0
	}
	return k != nil && k.seq == m.Seq && bytes.Equal(k.text, m.Data)
}

func (e *engine) FlowControl(ctx context.Context) (*driver.FlowControl, error) {
	k, err := e.readFlowControl(ctx)
	return k.flow, err
}

func (e *engine) readFlowControl(ctx context.Context) (knownFlowControl, error) {
	p, known := e.parts[0], e.flow.Load()
	m, err := p.last(ctx, p.flowControlSubject())
	if err != nil {
		return knownFlowControl{}, err
	}
	return e.learnFlowControl(known, m, p.replicas == 1)
}

// learnFlowControl takes over the limits and pauses that were read. Known is as of before the read. A lower
// sequence, or none, means that the server is behind, or that the queue was restored from a
// backup. Those are taken over only if the answer is certain, since the server is not behind: after
// each claim, and with each heartbeat of a worker.
func (e *engine) learnFlowControl(known *knownFlowControl, m stored, certain bool) (knownFlowControl, error) {
	if known.isOf(m) {
		if known == nil {
			return knownFlowControl{}, nil
		}
		return *known, nil
	}
	k := &knownFlowControl{}
	if m.Seq > 0 {
		var err error
		if k, err = parseFlowControl(m); err != nil {
			return knownFlowControl{}, err
		}
	}
	for known == nil || known.seq < k.seq || certain {
		if e.flow.CompareAndSwap(known, k) {
			e.recall()
			break
		}
		known, certain = e.flow.Load(), false // others have read it since
	}
	return *k, nil
}

func parseFlowControl(m stored) (*knownFlowControl, error) {
	revision, text, ok := bytes.Cut(m.Data, []byte{'\n'})
	n, err := parseInt(string(revision))
	if err != nil || !ok {
		return nil, fmt.Errorf("%w: cannot read the limits and pauses: %.100q", driver.ErrStorage, m.Data)
	}
	flow, err := driver.DecodeFlowControl(n, string(text))
	return &knownFlowControl{flow: flow, seq: m.Seq, text: m.Data}, err
}

// flowControlSince returns the limits and pauses as of when a witness was written in a partition.
func (e *engine) flowControlSince(ctx context.Context, p *part, w witness) (*driver.FlowControl, error) {
	first := e.parts[0]
	if p != first { // sequences of two streams cannot be compared
		return e.FlowControl(ctx)
	}
	known := e.flow.Load()
	m, err := first.lastSince(ctx, w, first.flowControlSubject(), false)
	if err != nil {
		return nil, err
	}
	k, err := e.learnFlowControl(known, m, true)
	return k.flow, err
}

// lastFlowControl returns the limits and pauses that were read last.
func (e *engine) lastFlowControl() *driver.FlowControl {
	if k := e.flow.Load(); k != nil {
		return k.flow
	}
	return nil
}

func (e *engine) SetFlowControl(ctx context.Context, was int64, r *driver.FlowControl) error {
	p := e.parts[0]
	if len(r.Limits()) > 0 && len(e.parts) > 1 {
		return fmt.Errorf("%w: a queue of %d partitions cannot have limits, only pauses", driver.ErrInvalid, len(e.parts))
	}
	text := fmt.Appendf(nil, "%d\n%s", r.Revision(), r.Encode())
	if len(text) > maxFlowControl {
		return fmt.Errorf("%w: the limits and pauses have %d bytes, more than %d", driver.ErrFull, len(text), maxFlowControl)
	}
	return p.change(ctx, "limits and pauses", func(error) (bool, error) {
		there, err := e.readFlowControl(ctx)
		if err != nil {
			return false, err
		}
		if done, err := revised(there.flow.Revision(), was, r.Revision()); done {
			return true, err
		}
		err = p.write(ctx, write{subject: p.flowControlSubject(), data: text, last: seq(there.seq), rollup: true})
		if err == nil {
			e.flowControlChanged(ctx, there.flow, r)
		}
		return false, err
	})
}

// maxFlowControl is how large all limits and pauses may be together: a server takes messages of 1 MiB by
// default.
const maxFlowControl = 768 << 10

// flowControlChanged notifies all workers of changed limits and pauses, and removes the counters and permits of
// limits that were deleted. An ID is not used again.
func (e *engine) flowControlChanged(ctx context.Context, was, now *driver.FlowControl) {
	_, _ = e.FlowControl(ctx) // else the next claim finds out
	e.publish("limits", nil)
	e.notifyAll(driver.Notice{FlowControl: true})
	for _, l := range was.Limits() {
		if !slices.ContainsFunc(now.Limits(), func(other *driver.StoredLimit) bool { return other.ID == l.ID }) {
			for _, p := range e.parts {
				_ = p.purge(ctx, p.permitSubject(itoa(l.ID)+".>"), 0) // it is garbage, and no more
				_ = p.purge(ctx, p.quotaSubject(itoa(l.ID)+".>"), 0)
			}
		}
	}
}

func (e *engine) Usage(ctx context.Context) ([]driver.Usage, error) {
	flow, err := e.FlowControl(ctx)
	if err != nil {
		return nil, err
	}
	counted := map[driver.LimitKey]*driver.Counter{}
	for _, l := range flow.Limits() {
		for _, p := range e.parts {
			if err := p.quotas.usage(ctx, l.ID, counted); err != nil {
				return nil, err
			}
		}
	}
	all := make([]driver.Usage, 0, len(counted))
	for key, c := range counted {
		all = append(all, driver.Usage{LimitKey: key, Counter: *c})
	}
	return all, nil
}

// CancelRunning stores a request for the worker of a claim: a message of the subject
// a.<worker>.<id>, with the sequence of the claim's status, on the condition that this is the
// last one.
func (e *engine) CancelRunning(ctx context.Context, ref driver.Ref) (bool, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return false, err
	}
	ok := false
	err = p.change(ctx, "the job", func(lost error) (bool, error) {
		at, _, s, err := p.current(ctx, a)
		if err != nil {
			return false, err
		}
		if s.fate != claimed {
			return true, lost
		}
		err = p.write(ctx, write{
			subject: p.cancelSubject(s.worker, a.id), data: fmt.Appendf(nil, "%d %d %d %s", at.bucket, at.version, s.seq, ref),
			last: seq(s.seq), guard: p.fateSubject(at), rollup: true, ttl: cancelTTL,
		})
		if ok = err == nil; ok {
			e.publish("cancel."+s.worker, []byte(ref))
			e.notifyWorker(ctx, s.worker)
		}
		return false, err
	})
	return ok, err
}

// cancelTTL is for how long a request to cancel is kept.
const cancelTTL = 24 * time.Hour

// notifyCanceled notifies a worker of the requests to cancel its claims, and removes the requests
// for claims that have ended.
func (w *worker) notifyCanceled(ctx context.Context, p *part) error {
	if w.c.Notify == nil {
		return nil
	}
	requests, err := p.lasts(ctx, []string{p.cancelSubject(w.c.Name, "*")})
	if err != nil || len(requests) == 0 {
		return err
	}
	var refs []driver.Ref
	for subject, m := range requests {
		var at location
		var claim uint64
		var ref string
		if _, err := fmt.Sscanf(string(m.Data), "%d %d %d %s", &at.bucket, &at.version, &claim, &ref); err != nil {
			return fmt.Errorf("%w: cannot read the request to cancel a job: %q", driver.ErrStorage, m.Data)
		}
		at.id = strings.TrimPrefix(subject, p.cancelSubject(w.c.Name, ""))
		s, err := p.status(ctx, at)
		switch {
		case err != nil:
			return err
		case s.fate == claimed && s.seq == claim:
			refs = append(refs, driver.Ref(ref))
		default:
			_ = p.purge(ctx, subject, m.Seq) // or it lapses
		}
	}
	if len(refs) > 0 {
		w.c.Notify(driver.Notice{Canceled: refs})
	}
	return nil
}

// wireFreed is the form in which freed permits are published: with the sequences of the
// messages that free them, and the limits that they are of.
type wireFreed struct {
	Part    int               `json:"part"`
	Permits map[string]uint64 `json:"permits"`
	Limits  []driver.LimitKey `json:"limits"`
}

// notifyFreed notifies all workers of the permits that the written groups have freed. lane
// returns the lane of a group's job.
func (w *worker) notifyFreed(p *part, groups []group, results []result, lane func(i int) string) {
	freed := wireFreed{Part: p.number, Permits: map[string]uint64{}}
	for i, g := range groups {
		if results[i].err != nil {
			continue
		}
		for name, at := range permitsLeft(p, g, results[i].first) {
			freed.Permits[name] = at
			if key, ok := limitKeyOf(name, lane(i)); ok && !slices.Contains(freed.Limits, key) {
				freed.Limits = append(freed.Limits, key)
			}
		}
	}
	if len(freed.Permits) == 0 {
		return
	}
	p.quotas.learnFreed(freed.Permits)
	if data, err := json.Marshal(freed); err == nil {
		w.e.publish("freed", data)
	}
	w.e.notifyAll(driver.Notice{Freed: freed.Limits})
}

// noticePrefix is the prefix of the subjects of notices, which no stream stores.
func (e *engine) noticePrefix() string { return "TWA_" + e.queue + "." }

func (e *engine) publish(what string, data []byte) {
	e.parts[0].nc.post(e.noticePrefix()+what, data)
}

// notifyAll notifies the workers of this engine.
func (e *engine) notifyAll(n driver.Notice) {
	e.mu.Lock()
	workers := slices.Clone(e.workers)
	e.mu.Unlock()
	for _, w := range workers {
		w.c.Notify(n)
	}
}

// recall makes the workers of this engine ask for their deferred jobs again.
func (e *engine) recall() {
	e.mu.Lock()
	workers := slices.Clone(e.workers)
	e.mu.Unlock()
	for _, w := range workers {
		w.recall()
	}
}

// notifyWorker notifies one worker of this engine of its canceled claims.
func (e *engine) notifyWorker(ctx context.Context, name string) {
	e.mu.Lock()
	workers := slices.Clone(e.workers)
	e.mu.Unlock()
	for _, w := range workers {
		if w.c.Name == name {
			_ = w.each(func(p *part) error { return w.notifyCanceled(ctx, p) }) // or its next heartbeat does
		}
	}
}

// listen passes notices of other processes to a worker, until stop is called. Without the
// permission to subscribe the worker finds the same by its polls, later.
func (e *engine) listen(ctx context.Context, w *worker) (stop func()) {
	if w.c.Notify == nil {
		return func() {}
	}
	e.mu.Lock()
	e.workers = append(e.workers, w)
	e.mu.Unlock()
	c := e.parts[0].nc
	sub, err := call(ctx, c, nil, func() (*nats.Subscription, error) {
		return c.nc.Subscribe(e.noticePrefix()+">", func(m *nats.Msg) { e.receive(ctx, w, m) })
	})
	return func() {
		if err == nil {
			unsubscribe(sub)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.workers = slices.DeleteFunc(e.workers, func(other *worker) bool { return other == w })
	}
}

// receive passes on what another process has published.
func (e *engine) receive(ctx context.Context, w *worker, m *nats.Msg) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	switch what := strings.TrimPrefix(m.Subject, e.noticePrefix()); what {
	case "limits":
		if _, err := e.FlowControl(ctx); err == nil {
			w.c.Notify(driver.Notice{FlowControl: true})
		}
	case "freed":
		var freed wireFreed
		if json.Unmarshal(m.Data, &freed) == nil && freed.Part >= 0 && freed.Part < len(e.parts) {
			e.parts[freed.Part].quotas.learnFreed(freed.Permits)
			w.c.Notify(driver.Notice{Freed: freed.Limits})
		}
	case "cancel." + w.c.Name:
		_ = w.each(func(p *part) error { return w.notifyCanceled(ctx, p) })
	}
}
