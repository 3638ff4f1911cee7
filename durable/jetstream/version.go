package jetstream

import (
	"fmt"
	"strconv"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// wireVersion is that of what is stored: wire.go, and the subjects in doc.go.
//
//	1  the first one, which did not say so
//	2  a claim says whether it is exact, and how many before it did not end; a record, too
//	3  schedules; a record has a lane, a priority, Meta, a timeout and when it expires; near
//	   buckets have a subject for each kind
//	4  limits and pauses, which older workers would not obey; a claim names its permits
//	5  near buckets have a subject for all kinds that the same workers can run
//	6  jobs that free their key when they begin, signals, and jobs that were pushed back
//
// All later versions can read what one stores. It is kept in each stream's metadata. A
// Connect raises it to its own, and one whose version is lower refuses the stream. So
// does a worker that is at work when it is raised: it is told with its next poll of the
// clock. It would pass what it does not know on without it, or count it differently.
const wireVersion = 6

const metaVersion = "tickwheel-version"

// versionOf returns the version of a stream's metadata.
func versionOf(metadata map[string]string) (int, error) {
	text := metadata[metaVersion]
	if text == "" {
		return 1, nil
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("%w: cannot read the stream's version %q", driver.ErrStorage, text)
	}
	if v > wireVersion {
		return v, fmt.Errorf("%w: the stream has version %d, and this program knows %d", driver.ErrVersion, v, wireVersion)
	}
	return v, nil
}
