package jetstream

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/options"
)

// geometry is how time is cut into subjects: two levels of a hierarchical timing wheel. A
// stream's is fixed when it is made, and kept in its metadata, since every Ref depends on
// it. Times are in microseconds, which the year 9999 fits.
type geometry struct {
	near   int64 // width of a bucket of the finer level, whose subject is q.<number>
	far    int64 // of the coarser level: h.<number>; a multiple of near
	lead   int64 // how long before it begins a far bucket is moved to its near ones
	settle int64 // how long after its end a near bucket is closed, at the earliest
}

var defaultBuckets = options.Buckets{Near: 5 * time.Second, Far: time.Hour, Lead: 10 * time.Minute, Settle: 10 * time.Second}

func geometryOf(b options.Buckets) geometry {
	return geometry{
		near: b.Near.Microseconds(), far: b.Far.Microseconds(), lead: b.Lead.Microseconds(), settle: b.Settle.Microseconds(),
	}
}

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

// isFar reports whether a job that is stored now goes to the coarser level. The margin of
// half a lead keeps what is on its way out of a bucket that is being moved.
func (g geometry) isFar(bucket int64, now time.Time) bool {
	return now.Add(time.Duration(g.lead/2) * time.Microsecond).Before(g.cascadeAt(g.farOf(bucket)))
}

// closeAt is when a near bucket may be closed.
func (g geometry) closeAt(bucket int64) time.Time {
	return g.end(bucket).Add(time.Duration(g.settle) * time.Microsecond)
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

func (g geometry) String() string {
	return fmt.Sprintf("%d %d %d %d", g.near, g.far, g.lead, g.settle)
}

func parseGeometry(s string) (g geometry, err error) {
	if _, err = fmt.Sscanf(s, "%d %d %d %d", &g.near, &g.far, &g.lead, &g.settle); err != nil {
		return g, fmt.Errorf("jetstream: unknown buckets %q of the stream: %w", s, err)
	}
	return g, nil
}
