package jetstream

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// wireVersion is the version of the stored data. FORMAT.md is its contract, and says which
// changes need the next version.
//
// Each stream has its version in its metadata. A Connect raises it to its own, and can read
// what every lower version has stored. An engine of a lower version does not know that data.
// So it writes nothing more: a write checks the version first, if no answer of the server has
// shown it for versionAge.
const wireVersion = 1

const metaVersion = "tickwheel-version"

// versionAge is how long an answer of the server counts that has shown the version. Workers
// poll more often.
const versionAge = time.Second

// versionOf reads a stream's version. It returns ErrVersion for one that is higher than known.
func versionOf(text string, known int) (int, error) {
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("%w: cannot read the stream's version %q", driver.ErrStorage, text)
	}
	if v > known {
		return v, fmt.Errorf("%w: the stream has version %d, and this program knows %d", driver.ErrVersion, v, known)
	}
	return v, nil
}
