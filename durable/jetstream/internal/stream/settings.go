package stream

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A server passes over what it does not know in a request, and says nothing. And an operator may
// change a stream at any time. So what counts is the stream as the server describes it: at Connect, and
// with each poll.

// The servers that the engine works with. Older ones than 2.12 know no atomic batches, and 2.12.7
// has fixes of security. Only the server of this connection is looked at. Others of a cluster may
// be older: then the stream lacks what they passed over, and CheckSettings says so.
var (
	LeastServer  = [3]int{2, 12, 7}
	LeastRestore = [3]int{2, 15, 0}
)

// errTooOld is that of a server that lacks what is needed.
var errTooOld = errors.New("jetstream: the server is too old")

// TooOld says which version is needed, and which the connected server has.
func TooOld(nc *nats.Conn, least [3]int) error {
	return fmt.Errorf("%w: this needs NATS %d.%d.%d, this server is %s", errTooOld, least[0], least[1], least[2], nc.ConnectedServerVersion())
}

// CheckServer returns an error if the connected server is older than least. A version that cannot be
// read is taken to be new enough, and the stream tells.
func CheckServer(nc *nats.Conn, least [3]int) error {
	var version [3]int
	_, err := fmt.Sscanf(nc.ConnectedServerVersion(), "%d.%d.%d", &version[0], &version[1], &version[2])
	if err == nil && slices.Compare(version[:], least[:]) < 0 {
		return TooOld(nc, least)
	}
	return nil
}

// AllowAll asks for all that the engine uses of a stream, and reports whether that changes
// something. A stream that an older server made lacks some of it, and an update by a newer one adds
// that.
func AllowAll(s *natsjs.StreamConfig) (changed bool) {
	for _, allow := range []*bool{&s.AllowDirect, &s.AllowMsgTTL, &s.AllowAtomicPublish, &s.AllowRollup} {
		changed = changed || !*allow
		*allow = true
	}
	return changed
}

// leastConsumers is how many consumers a queue needs at least: for one set of kinds, in the
// buckets that are current, in some that are overdue, and in a far one.
const leastConsumers = 16

// errSettings is that of a stream whose settings lose jobs or stop the queue.
var errSettings = errors.New("jetstream: the stream's settings were changed")

// CheckSettings returns an error that names all settings of a stream with which jobs are lost, or
// do not run. It changes none: an operator who has changed one may have a reason, and finds the
// error of Add and Health. Settings that are not here, such as placement and compression, are the
// operator's.
func CheckSettings(s *natsjs.StreamConfig, name string, maxPayload int) error {
	var wrong []string
	check := func(is bool, name string, value any, want string) {
		if is {
			wrong = append(wrong, fmt.Sprintf("%s is %v, must be %s", name, value, want))
		}
	}
	check(s.Retention != natsjs.LimitsPolicy, "retention", s.Retention, "limits")
	check(s.Storage != natsjs.FileStorage, "storage", s.Storage, "file")
	check(s.Discard != natsjs.DiscardNew, "discard", s.Discard, "new")
	check(s.MaxAge > 0, "max_age", s.MaxAge, "0")
	check(s.MaxMsgs > 0, "max_msgs", s.MaxMsgs, "-1")
	check(s.MaxMsgsPerSubject > 0, "max_msgs_per_subject", s.MaxMsgsPerSubject, "-1")
	check(s.MaxMsgSize > 0 && int(s.MaxMsgSize) < maxPayload, "max_msg_size", s.MaxMsgSize, "-1")
	check(s.MaxConsumers > 0 && s.MaxConsumers < leastConsumers, "max_consumers", s.MaxConsumers, "-1, or 16 at least")
	check(!slices.Contains(s.Subjects, name+".>"), "subjects", s.Subjects, name+".>")
	check(s.NoAck, "no_ack", s.NoAck, "false")
	check(s.Sealed, "sealed", s.Sealed, "false")
	check(s.DenyDelete, "deny_delete", s.DenyDelete, "false")
	check(s.DenyPurge, "deny_purge", s.DenyPurge, "false")
	check(s.Mirror != nil, "mirror", "set", "unset")
	check(s.SubjectDeleteMarkerTTL > 0, "subject_delete_marker_ttl", s.SubjectDeleteMarkerTTL, "0") // markers take the place of heartbeats that have expired
	check(s.SubjectTransform != nil, "subject_transform", "set", "unset")
	check(s.PersistMode != natsjs.DefaultPersistMode, "persist_mode", s.PersistMode, "default")
	check(!s.AllowDirect, "allow_direct", false, "true")
	check(!s.AllowMsgTTL, "allow_msg_ttl", false, "true")
	check(!s.AllowAtomicPublish, "allow_atomic", false, "true")
	check(!s.AllowRollup, "allow_rollup_hdrs", false, "true")
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: stream %s: %s", errSettings, name, strings.Join(wrong, "; "))
}

// troubleLasts is for how long a refused consumer is a trouble.
const troubleLasts = 15 * time.Second

// LimitConsumers returns an error if the account may not have enough consumers. The limit of a
// stream is one of its settings; both count.
func LimitConsumers(most int) error {
	if most > 0 && most < leastConsumers {
		return fmt.Errorf("%w: the account's max_consumers is %d, a queue needs %d at least", driver.ErrInvalid, most, leastConsumers)
	}
	return nil
}

// MetaVersion is the key of the data's version in a stream's metadata.
const MetaVersion = "tickwheel-version"

// versionAge is how long an answer of the server counts that has shown the version. Workers
// poll more often.
const versionAge = time.Second

// VersionOf reads a stream's version. It returns ErrVersion for one that is higher than known, and
// ErrStorage for one that it cannot read: to go on would be to write into the data of somebody
// else.
func VersionOf(text string, known int) (int, error) {
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 {
		return 0, fmt.Errorf("%w: cannot read the stream's version %q", driver.ErrStorage, text)
	}
	if v > known {
		return v, fmt.Errorf("%w: the stream has version %d, and this program knows %d", driver.ErrVersion, v, known)
	}
	return v, nil
}
