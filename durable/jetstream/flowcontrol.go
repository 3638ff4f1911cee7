package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// Limits and pauses are one message of the first partition, r: a line with their revision, and then
// their text. It is replaced on the condition that it is as it was read.
//
// One message for all is enough, since they change seldom, and a claim needs all of them at one
// time. Each process keeps the last ones that it has read, and compares them after each call of
// Claim (applyLimits).

// flowControl is the limits and pauses of a queue, as they were read last. It decides about no job:
// claims are planned by it, and compared with it again after they are written.
//
// Known is replaced as a whole, and has no lock; nobody changes the value that it points to. It is
// nil before the first read, and when the stream went back. A reader that was overtaken finds out
// by CompareAndSwap, and does not put an older state in its place.
type flowControl struct {
	parts   []*quotas
	notices *notices
	known   atomic.Pointer[knownFlowControl]
}

// knownFlowControl is the limits and pauses as they were read. The zero value is that of a queue
// that has none, and of one of which nothing is read yet: then claims are planned without limits,
// and the read after the claim gives back those that a limit covers.
type knownFlowControl struct {
	flow *driver.FlowControl
	seq  uint64 // Of the message; 0 for none.
	text []byte // Of the message.
}

// noFlowControl is what nil stands for. It is never stored in known.
var noFlowControl = &knownFlowControl{}

// FlowControl asks the stream's leader. It costs one read of one message, and no parsing if nothing
// has changed. A leader that was deposed and does not know it may show what was there before.
func (fc *flowControl) FlowControl(ctx context.Context) (*driver.FlowControl, error) {
	k, err := fc.readFlowControl(ctx)
	return k.flow, err
}

func (fc *flowControl) readFlowControl(ctx context.Context) (*knownFlowControl, error) {
	p, known := fc.parts[0], fc.known.Load()
	m, err := p.Last(ctx, p.flowControlSubject())
	if err != nil {
		return noFlowControl, err
	}
	return fc.learnFlowControl(known, m, p.Replicas() == 1)
}

// learnFlowControl takes over the limits and pauses that were read, and returns them. Known is as
// of before the read.
//
// A lower sequence, or none, means that the server is behind, or that the queue was restored from a
// backup. Those are taken over only if the answer is certain, since the server is not behind: after
// each claim, and with each heartbeat of a worker. The caller gets the limits and pauses that were
// read in any case, since it compares them, or writes on the condition that they are there.
//
// Each change makes the workers of this engine request their deferred jobs again.
func (fc *flowControl) learnFlowControl(known *knownFlowControl, m stream.Message, certain bool) (*knownFlowControl, error) {
	was := cmp.Or(known, noFlowControl)
	// The text counts, too: in a stream that went back others may have the same sequence and
	// revision.
	if was.seq == m.Seq && bytes.Equal(was.text, m.Data) {
		return was, nil
	}
	k, err := parseFlowControl(m)
	if err != nil {
		return noFlowControl, err
	}
	for cmp.Or(known, noFlowControl).seq < k.seq || certain {
		if fc.known.CompareAndSwap(known, k) {
			for _, l := range fc.notices.all() {
				l.recall()
			}
			break
		}
		known, certain = fc.known.Load(), false // others have read it since
	}
	return k, nil
}

func parseFlowControl(m stream.Message) (*knownFlowControl, error) {
	if m.Seq == 0 {
		return &knownFlowControl{}, nil // a pointer of its own, so that CompareAndSwap tells it from an earlier one
	}
	revision, text, ok := bytes.Cut(m.Data, []byte{'\n'})
	n, err := parseInt(string(revision))
	if err != nil || !ok {
		return nil, fmt.Errorf("%w: cannot read the limits and pauses: %.100q", driver.ErrStorage, m.Data)
	}
	flow, err := driver.DecodeFlowControl(n, string(text))
	return &knownFlowControl{flow: flow, seq: m.Seq, text: m.Data}, err
}

// flowControlSince returns the limits and pauses as of when a witness was written in a partition.
// Sequences of two streams cannot be compared. So of a claim in another partition it asks the
// leader, which may be deposed: a queue of several partitions has pauses only, and a worker also
// reads those every second.
func (fc *flowControl) flowControlSince(ctx context.Context, p *buckets, w stream.Witness) (*driver.FlowControl, error) {
	first := fc.parts[0]
	if p != first.buckets {
		return fc.FlowControl(ctx)
	}
	known := fc.known.Load()
	m, err := first.LastSince(ctx, w, first.flowControlSubject(), false)
	if err != nil {
		return nil, err
	}
	k, err := fc.learnFlowControl(known, m, true)
	return k.flow, err
}

// lastFlowControl returns the limits and pauses that were read last. It asks no server: claims are
// planned by it, and a plan may be wrong.
func (fc *flowControl) lastFlowControl() *driver.FlowControl {
	return cmp.Or(fc.known.Load(), noFlowControl).flow
}

// SetFlowControl writes one message, on the condition that the one that was read is there still. If
// the answer is lost it reads again: its own revision there says that it was stored.
//
// With was as the revision of r it writes nothing, and confirms that this is the stored one.
func (fc *flowControl) SetFlowControl(ctx context.Context, was int64, r *driver.FlowControl) error {
	p := fc.parts[0]
	if len(r.Limits()) > 0 && len(fc.parts) > 1 {
		return fmt.Errorf("%w: a queue of %d partitions cannot have limits, only pauses", driver.ErrInvalid, len(fc.parts))
	}
	text := fmt.Appendf(nil, "%d\n%s", r.Revision(), r.Encode())
	if len(text) > maxFlowControl {
		return fmt.Errorf("%w: the limits and pauses have %d bytes, more than %d", driver.ErrFull, len(text), maxFlowControl)
	}
	return p.retry(ctx, "limits and pauses", func(error) (bool, error) {
		there, err := fc.readFlowControl(ctx)
		if err != nil {
			return false, err
		}
		switch done, err := revised(there.flow.Revision(), was, r.Revision()); {
		case done && err == nil && was == r.Revision():
			return p.ifStands(ctx, reading{p.flowControlSubject(): there.seq}, nil)
		case done:
			return true, err
		}
		err = p.Write(ctx, stream.Write{Subject: p.flowControlSubject(), Data: text, Last: stream.Seq(there.seq), Rollup: true})
		if err == nil {
			fc.flowControlChanged(ctx, there.flow, r)
		}
		return false, err
	})
}

// maxFlowControl is how large all limits and pauses may be together: a server takes messages of 1
// MiB by default.
const maxFlowControl = 768 << 10

// flowControlChanged notifies all workers of changed limits and pauses, and removes the counters
// and permits of limits that were deleted. Without the removal they would stay as garbage, and do
// no harm: an ID is not used again. All of it may fail, since the change is stored.
func (fc *flowControl) flowControlChanged(ctx context.Context, was, now *driver.FlowControl) {
	_, _ = fc.FlowControl(ctx) // else the next claim finds out
	fc.notices.publish("limits", nil)
	fc.notices.notifyAll(driver.Notice{FlowControl: true})
	for _, l := range was.Limits() {
		if !slices.ContainsFunc(now.Limits(), func(other *driver.StoredLimit) bool { return other.ID == l.ID }) {
			for _, p := range fc.parts {
				_ = p.PurgeAll(ctx, p.permitSubject(itoa(l.ID)+".>"))
				_ = p.PurgeAll(ctx, p.quotaSubject(itoa(l.ID)+".>"))
			}
		}
	}
}

// Usage reads the permits and counters of each limit, lane by lane: it is for people, and for
// metrics. A worker never calls it.
func (fc *flowControl) Usage(ctx context.Context) ([]driver.Usage, error) {
	flow, err := fc.FlowControl(ctx)
	if err != nil {
		return nil, err
	}
	counted := map[driver.LimitKey]driver.Counter{}
	for _, l := range flow.Limits() {
		for _, p := range fc.parts {
			if err := p.usage(ctx, l.ID, counted); err != nil {
				return nil, err
			}
		}
	}
	all := make([]driver.Usage, 0, len(counted))
	for key, c := range counted {
		all = append(all, driver.Usage{LimitKey: key, Counter: c})
	}
	return all, nil
}
