package postgres

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// idOf returns a job's id in the table: when it was born, and its ID. So two records are
// one job if they agree in both; ids grow with time, which keeps new rows on the same few
// pages of the index; and what was born before a moment is a range of them.
func idOf(r *driver.Record) string { return bornID(r.Born) + "." + r.ID }

// bornID returns what the ids of jobs begin with that were born then. Its width is fixed,
// so that text sorts like time, from 1970 to the year 6140.
func bornID(t time.Time) string {
	s := strconv.FormatInt(max(t.UnixMicro(), 0), 36)
	return strings.Repeat("0", max(0, 11-len(s))) + s
}

// refs makes the Refs of a queue, which is known by its schema's name, and takes no others. It does not
// change, and asks the server nothing.
type refs struct{ schema string }

// refOf returns the Ref of an id. The sum, over the schema's name, too, tells it from a
// Ref of another queue and from one that was mistyped, also when the job is long
// forgotten.
func (q *refs) refOf(id string) driver.Ref {
	return driver.Ref(id + "." + q.checksum(id))
}

func (q *refs) checksum(id string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(q.schema+"\n"+id))), 36)
}

// maxID is how long an id may be, in bytes.
const maxID = 160

// parse returns the id of a Ref. It takes no text that no id can be, so that the server is
// asked nothing that it cannot read.
func (q *refs) parse(r driver.Ref) (string, error) {
	if i := strings.LastIndexByte(string(r), '.'); i >= 0 && i <= maxID {
		if id := string(r[:i]); validID(id) && q.checksum(id) == string(r[i+1:]) {
			return id, nil
		}
	}
	return "", fmt.Errorf("%w: %.200q is not a Ref of this queue", driver.ErrNotFound, string(r))
}

// validID reports whether a text may be an id: of letters, digits, -, _ and the dot.
func validID(id string) bool {
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.' {
			return false
		}
	}
	return true
}
