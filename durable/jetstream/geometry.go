package jetstream

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/options"
)

// geometry is how time is cut into subjects: two levels of a hierarchical timing wheel. A stream's
// is fixed when the stream is made, and kept in its metadata, since every Ref and every stored
// version names a bucket by its number. A process with another geometry would look for jobs in the
// wrong buckets.
//
// Times are in microseconds, as those of records are: a time.Duration ends after 292 years, and
// buckets are counted from 1970 to the year 9999. All methods are pure arithmetic, and no clock is
// read.
type geometry struct {
	near   int64 // Width of a bucket of the finer level, whose subject is q.<number>.
	far    int64 // Width of a bucket of the coarser level, h.<number>; a multiple of near.
	lead   int64 // How long before it begins a far bucket is moved to its near ones.
	settle int64 // How long after its end a near bucket is closed, at the earliest.
}

// The default is a compromise. A smaller Near would mean more consumers, which a server makes
// slowly; a larger one would keep the statuses of ended jobs for longer.
var defaultBuckets = options.Buckets{Near: 5 * time.Second, Far: time.Hour, Lead: 10 * time.Minute, Settle: 10 * time.Second}

func geometryOf(b options.Buckets) geometry {
	return geometry{b.Near.Microseconds(), b.Far.Microseconds(), b.Lead.Microseconds(), b.Settle.Microseconds()}
}

// nearOf rounds down: a bucket begins no later than its times.
func (g geometry) nearOf(t time.Time) int64     { return floorDiv(t.UnixMicro(), g.near) }
func (g geometry) farOf(bucket int64) int64     { return floorDiv(bucket*g.near, g.far) }
func (g geometry) start(bucket int64) time.Time { return time.UnixMicro(bucket * g.near) }
func (g geometry) end(bucket int64) time.Time   { return g.start(bucket + 1) }

// cascadeAt is when a far bucket begins to be moved.
func (g geometry) cascadeAt(far int64) time.Time { return time.UnixMicro(far*g.far - g.lead) }

// nextCascade is when the next far bucket begins to be moved.
func (g geometry) nextCascade(now time.Time) time.Time {
	return g.cascadeAt(floorDiv(now.UnixMicro()+g.lead, g.far) + 1)
}

// isFar reports whether a job that is stored now goes to the coarser level. Half a lead is the
// margin for a write that is on its way, and for clocks that differ: it arrives before the bucket
// is moved. A write that is later still is refused by the mark of the far bucket, or moved by a
// later poll.
func (g geometry) isFar(bucket int64, now time.Time) bool {
	return now.Add(time.Duration(g.lead/2) * time.Microsecond).Before(g.cascadeAt(g.farOf(bucket)))
}

// closeAt is when a near bucket may be closed. The settling time is for inserts that are on their
// way: one that finds its bucket closed has to be tried again, in the first open one.
func (g geometry) closeAt(bucket int64) time.Time {
	return g.end(bucket).Add(time.Duration(g.settle) * time.Microsecond)
}

// floorDiv rounds toward minus infinity, where / rounds toward 0: else the two buckets beside 1970
// would be one, of twice the width.
func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

// String is the stored form, which parseGeometry reads: four numbers, so that it can be compared as
// text.
func (g geometry) String() string {
	return fmt.Sprintf("%d %d %d %d", g.near, g.far, g.lead, g.settle)
}

func parseGeometry(s string) (g geometry, err error) {
	if _, err = fmt.Sscanf(s, "%d %d %d %d", &g.near, &g.far, &g.lead, &g.settle); err != nil {
		return g, fmt.Errorf("jetstream: unknown buckets %q of the stream: %w", s, err)
	}
	return g, nil
}
