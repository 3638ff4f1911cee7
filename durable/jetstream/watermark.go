package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
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

// buckets are a stream's: its messages by their subjects, and the watermark. It knows no job, and
// no clock decides here. Mu guards the watermark alone, which is one value: near, far and seq of
// one message, and when that was read.
type buckets struct {
	*stream.Stream
	subjects
	staleAge time.Duration // handle.go
	nonce    string        // of the witnesses of this engine

	mu        sync.Mutex
	watermark watermark
	read      time.Time // By this machine's clock; zero: it is to be read.
}

// watermark is what such a message says. Both numbers only rise, so of two commits that raise it
// the one that comes second is refused by the sequence, and raises what the first one has left.
type watermark struct {
	near, far int64
	seq       uint64 // of the message; 0 for none
}

// bottom is the watermark of a stream of which no bucket was ever closed.
var bottom = watermark{near: math.MinInt64, far: math.MinInt64}

func (f watermark) encode() []byte { return fmt.Appendf(nil, "%d %d", f.near, f.far) }

// lowest returns the watermark as it is known here. It may have risen since: a write on the
// condition that a bucket has no mark tells. It falls only when an older backup is restored.
func (b *buckets) lowest() watermark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watermark
}

// learn takes over a watermark that was read or written. It may be older than the one that is known:
// then the next conflict tells. A watermark that is higher than the stored one would let marks be
// written above that, and others would try in vain to store jobs there.
func (b *buckets) learn(f watermark) { b.learnAt(f, time.Time{}) }

func (b *buckets) learnAt(f watermark, read time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watermark, b.read = f, read
}

// sync reads the server's clock and the watermark: before a poll, and after a conflict.
func (b *buckets) sync(ctx context.Context) error {
	if err := b.readWatermark(ctx); err != nil {
		return err
	}
	return b.Clock.Sync(ctx)
}

// readWatermark takes over a lower one, too, or the lack of one: the queue was restored from a
// backup. Or the server is behind, and the next conflict tells.
func (b *buckets) readWatermark(ctx context.Context) error {
	began := time.Now()
	m, err := b.Last(ctx, b.watermarkSubject())
	if err != nil {
		return err
	}
	f := bottom
	if f.seq = m.Seq; m.Seq > 0 {
		if _, err := fmt.Sscanf(string(m.Data), "%d %d", &f.near, &f.far); err != nil {
			return fmt.Errorf("%w: cannot read how far buckets were closed: %q", driver.ErrStorage, m.Data)
		}
	}
	b.learnAt(f, began)
	return nil
}

// knowWatermark reads the watermark if that was not done lately. A job that was stored elsewhere, since the
// watermark had passed over its bucket, has left a forward for graveTTL after its end. So a reading of half that age
// tells it from one that waits.
func (b *buckets) knowWatermark(ctx context.Context) error {
	b.mu.Lock()
	read := b.read
	b.mu.Unlock()
	if time.Since(read) < graveTTL/2 {
		return nil
	}
	return b.readWatermark(ctx)
}

// markClosed writes the mark of a bucket, and with it what else belongs to that and the
// watermark, if that has to rise. False without an error: another one has raised it, so try
// again.
func (b *buckets) markClosed(ctx context.Context, subject string, raise func(*watermark), with ...stream.Write) (bool, error) {
	was := b.lowest()
	f := was
	raise(&f)
	g := append(stream.Group{b.mark(subject)}, with...)
	if f != was {
		g = append(g, stream.Write{Subject: b.watermarkSubject(), Data: f.encode(), Last: stream.Seq(was.seq), Rollup: true})
	}
	first, err := b.WriteSeq(ctx, g...)
	if errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrBusy) {
		return false, b.readWatermark(ctx)
	}
	if err == nil && f != was {
		f.seq = first + uint64(len(g)) - 1
		b.learn(f)
	}
	return err == nil, err
}

// openFor returns the bucket of a version that is due at a time: its own, or the first
// one above the watermark.
func (b *buckets) openFor(due time.Time) int64 {
	return max(b.nearOf(due), b.lowest().near+1)
}

// noteEmpty notes that a near bucket was empty after its mark was written, and its far bucket, too,
// and after which message of the stream.
func (b *buckets) noteEmpty(ctx context.Context, bucket int64, last uint64) error {
	return b.Write(ctx, stream.Write{Subject: b.emptySubject(bucket), Data: []byte(strconv.FormatUint(last, 10)), Rollup: true, TTL: markTTL})
}

// wasRemoved reports whether a message of a near bucket that is marked, or of its far bucket, had been
// removed, and is there only since a server took that back.
func (b *buckets) wasRemoved(ctx context.Context, message uint64, bucket int64) (bool, error) {
	note, err := b.OfLeader(ctx, map[string]any{"last_by_subj": b.emptySubject(bucket)})
	if err != nil || note.Seq == 0 {
		return false, err
	}
	last, err := strconv.ParseUint(string(note.Data), 10, 64)
	if err != nil {
		return false, fmt.Errorf("%w: cannot read when a bucket was empty: %w", driver.ErrStorage, err)
	}
	return message <= last, nil
}

// mark is the message that says that a bucket is closed.
func (b *buckets) mark(subject string) stream.Write {
	return stream.Write{Subject: subject, Data: []byte("closed"), Rollup: true, TTL: markTTL}
}

// markTTL is for how long it is remembered that a bucket was closed.
const markTTL = 24 * time.Hour

// graveTTL is how long a tombstone lasts. It is also for how long a repeated Add finds that its
// record has gone into another job, or was stored with another time (isStored).
const graveTTL = time.Minute

// bucketsOf returns the numbers of the buckets of a level that have something, and of how many
// messages. It costs one request for each page of subjects, and no message is read. A subject that
// is no bucket is passed over: a newer build may have stored it.
func (b *buckets) bucketsOf(ctx context.Context, level string) (map[int64]uint64, error) {
	prefix := b.subject(level) + "."
	info, err := b.Info(ctx, prefix+"*")
	if err != nil {
		return nil, err
	}
	found := make(map[int64]uint64, len(info.Subjects))
	for s, n := range info.Subjects {
		if number, err := parseInt(strings.TrimPrefix(s, prefix)); err == nil {
			found[number] = n
		}
	}
	return found, nil
}

// contents returns what the near buckets have that a filter selects.
func (b *buckets) contents(ctx context.Context, filter string) (map[int64]map[string]uint64, error) {
	info, err := b.Info(ctx, b.subject(filter))
	if err != nil {
		return nil, err
	}
	found := map[int64]map[string]uint64{}
	for s, n := range info.Subjects {
		bucket, queue, ok := b.parseNear(s)
		if !ok {
			continue
		}
		if found[bucket] == nil {
			found[bucket] = map[string]uint64{}
		}
		found[bucket][queue] = n
	}
	return found, nil
}

func sorted[V any](m map[int64]V) []int64 { return slices.Sorted(maps.Keys(m)) }

// backupTTL is the time that statuses stay after the last message b of a backup. No message
// tells the end of a backup, since another one may be under way.
const backupTTL = time.Minute

// isBackedUp reports whether a backup may be under way.
func (b *buckets) isBackedUp(ctx context.Context) (bool, error) {
	m, err := b.Last(ctx, b.backupSubject())
	return m.Seq > 0, err
}
