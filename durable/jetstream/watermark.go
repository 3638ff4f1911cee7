package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// The server's clock decides when a bucket is moved or closed, and that clock may be set
// back, or be that of another server, after an election. Its effects stay: a
// bucket that is closed is closed for good, though its time comes once more. So the
// stream has a watermark, that no clock can lower: the highest near bucket that was ever
// closed, and the highest far one that was ever moved. It is one message, t, without an
// end, that is written in the commit of the mark, on the condition that it is as it was
// read.
//
// A version of a job is stored in the bucket of its time if that is above the watermark, and
// in the first one above it if not: with its own time, so that it is not early, and read
// from now on, so that it is not late. It is found through its forward.

// watermark is what such a message says.
type watermark struct {
	near, far int64
	seq       uint64 // of the message; 0 for none
}

// bottom is the watermark of a stream of which no bucket was ever closed.
var bottom = watermark{near: math.MinInt64, far: math.MinInt64}

func (f watermark) encode() []byte { return fmt.Appendf(nil, "%d %d", f.near, f.far) }

// lowest returns the watermark as it is known here. It may have risen since: a
// write on the condition that a bucket has no mark tells. It falls only when an older backup is restored.
func (p *part) lowest() watermark {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watermark
}

// learn takes over what was read or written of the watermark. That may be older than what is known: then
// the next conflict tells. A watermark that is higher than what is stored would let marks be written
// above that, and others would try in vain to store jobs there.
func (p *part) learn(f watermark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watermark = f
}

// sync reads the server's clock and the watermark: before a poll, and after a conflict.
func (p *part) sync(ctx context.Context) error {
	if err := p.readWatermark(ctx); err != nil {
		return err
	}
	return p.clock.Sync(ctx)
}

func (p *part) readWatermark(ctx context.Context) error {
	m, err := p.last(ctx, p.watermarkSubject())
	if err == nil && m.Seq == 0 {
		p.learn(bottom)
	}
	if err != nil || m.Seq == 0 {
		return err
	}
	f := watermark{seq: m.Seq}
	if _, err := fmt.Sscanf(string(m.Data), "%d %d", &f.near, &f.far); err != nil {
		return fmt.Errorf("%w: cannot read how far buckets were closed: %q", driver.ErrStorage, m.Data)
	}
	p.learn(f)
	return nil
}

// markClosed writes the mark of a bucket, and with it what else belongs to that and the
// watermark, if that has to rise. False without an error: another one has raised it, so try
// again.
func (p *part) markClosed(ctx context.Context, subject string, raise func(*watermark), with ...write) (bool, error) {
	was := p.lowest()
	f := was
	raise(&f)
	g := append(group{p.mark(subject)}, with...)
	if f != was {
		g = append(g, write{subject: p.watermarkSubject(), data: f.encode(), last: seq(was.seq), rollup: true})
	}
	first, err := p.writeSeq(ctx, g...)
	if errors.Is(err, errConflict) || errors.Is(err, errBusy) {
		return false, p.readWatermark(ctx)
	}
	if err == nil && f != was {
		f.seq = first + uint64(len(g)) - 1
		p.learn(f)
	}
	return err == nil, err
}

// openFor returns the bucket of a version that is due at a time: its own, or the first
// one above the watermark.
func (p *part) openFor(due time.Time) int64 {
	b, f := p.nearOf(due), p.lowest()
	if b <= f.near {
		return f.near + 1
	}
	return b
}

// toFar reports whether a version that is stored in a bucket now goes to the coarser
// level. One that is put off to the first open bucket does not: it may be due at once.
func (p *part) toFar(bucket int64, due, now time.Time) bool {
	return bucket == p.nearOf(due) && p.farOf(bucket) > p.lowest().far && p.isFar(bucket, now)
}
