package jetstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// subjects names the messages of one partition; FORMAT.md says what is in them. It is fixed once the partition is open, so
// it needs no lock; it reads and writes nothing. A job is in h or q, and what became of it in c; all else leads there, or
// says what may be. Who writes each:
//
//	h.<far>                       inserts, changes, finisher: a job of a far bucket
//	q.<near>.<queue>              the same; mover; fetcher, of a job that is in the wrong queue
//	c.<near>.<id>.<version>       claimer, finisher, releases, changes, inserts: the status of a version
//	f.<id>, f.<id>.repeated       records, inserts: where the newest version is; an Add that may be a repeat
//	k.<hash>                      keys: the job that has a key
//	x.<id>                        finisher, changes: a dead job
//	s.<hash>                      schedules: a recurring job
//	m.<near>, m.h<far>, t         closer, mover: the marks of closed buckets, and the watermark
//	e.<near>, p.<near>            closer, while a bucket is removed
//	w.<worker>                    heart: a heartbeat
//	r                             flowControl: the limits and pauses, in partition 0
//	l.<quota>.<number>            claimer, finisher, releases: a permit
//	g.<quota>                     planner: the tokens of a limit, and whose turn it is
//	a.<worker>.<id>               changes: a request to cancel what runs
//	v.0, v.1                      admission: the reserve
//	y.<random>                    buckets: a witness
//	b                             copier: a backup is under way
type subjects struct {
	geometry
	root   string // the stream's name, with which each subject begins
	number int    // of the partition
	of     int    // partitions of the queue
	salt   string // of its Refs
}

func (s *subjects) subject(tokens string) string { return s.root + "." + tokens }

func (s *subjects) backupSubject() string { return s.subject("b") }

func (s *subjects) closingSubject(b int64) string { return s.subject("p." + itoa(b)) }

// emptySubject is that of the note that a near bucket and its far one were empty.
func (s *subjects) emptySubject(b int64) string { return s.subject("e." + itoa(b)) }

// queueSubject is that of a queue of a near bucket, or with * of all of them; see kinds.go.
func (s *subjects) queueSubject(bucket int64, queue string) string {
	return s.subject("q." + itoa(bucket) + "." + queue)
}

func (s *subjects) farSubject(far int64) string { return s.subject("h." + itoa(far)) }

func (s *subjects) nearMark(bucket int64) string { return s.subject("m." + itoa(bucket)) }

func (s *subjects) farMark(far int64) string { return s.subject("m.h" + itoa(far)) }

func (s *subjects) forward(id string) string { return s.subject("f." + id) }

func (s *subjects) deadSubject(id string) string { return s.subject("x." + id) }

func (s *subjects) workerSubject(n string) string { return s.subject("w." + n) }

func (s *subjects) statusSubject(at location) string {
	return s.subject("c." + itoa(at.bucket) + "." + at.id + "." + strconv.Itoa(at.version))
}

// jobMark is the mark whose absence says that a bucket is open still.
func (s *subjects) jobMark(bucket int64, far bool) string {
	if far {
		return s.farMark(s.farOf(bucket))
	}
	return s.nearMark(bucket)
}

// refOf returns the Ref of a record, whatever its version.
func (s *subjects) refOf(r *driver.Record) driver.Ref {
	return address{part: s.number, bucket: s.nearOf(r.At), born: r.Born.UnixMicro(), id: r.ID}.ref(s.salt)
}

// locationOf returns the location of a version that was read under a subject: the bucket is that
// of a near subject, which may be later than that of its time, and the latter in a far
// one.
func (s *subjects) locationOf(subject string, r *driver.Record) location {
	at := location{id: r.ID, bucket: s.nearOf(r.Due), version: r.Version}
	if b, _, near := s.parseNear(subject); near {
		at.bucket = b
	}
	return at
}

// parseNear returns the bucket and the queue of a near bucket's subject.
func (s *subjects) parseNear(subject string) (bucket int64, queue string, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.subject("q."))
	if !ok {
		return 0, "", false
	}
	number, queue, ok := strings.Cut(rest, ".")
	bucket, err := strconv.ParseInt(number, 10, 64)
	return bucket, queue, ok && err == nil
}

// filtersOf select all messages in which a version of a near bucket may be. The far bucket comes first: a job
// that is being moved is in both before it leaves that.
func (s *subjects) filtersOf(bucket int64) []string {
	return []string{s.farSubject(s.farOf(bucket)), s.queueSubject(bucket, "*")}
}

func (s *subjects) flowControlSubject() string { return s.subject("r") }

func (s *subjects) cancelSubject(worker, id string) string {
	return s.subject("a." + worker + "." + id)
}

func (s *subjects) repeatedSubject(id string) string { return s.subject("f." + id + ".repeated") }

// markOf returns the mark of the bucket that a job's subject is of.
func (s *subjects) markOf(subject string) string {
	if b, _, near := s.parseNear(subject); near {
		return s.nearMark(b)
	}
	return s.subject("m.h" + strings.TrimPrefix(subject, s.subject("h.")))
}

func (s *subjects) keySubject(key string) string {
	sum := sha256.Sum256([]byte(key))
	return s.subject("k." + hex.EncodeToString(sum[:16]))
}

func (s *subjects) permitSubject(permit string) string { return s.subject("l." + permit) }

func (s *subjects) quotaSubject(quota string) string { return s.subject("g." + quota) }

// parseFate returns the location of a version by the subject of its status.
func (s *subjects) parseFate(subject string) (at location, ok bool) {
	f := strings.Split(strings.TrimPrefix(subject, s.subject("c.")), ".")
	if len(f) != 3 {
		return at, false
	}
	bucket, err := parseInt(f[0])
	version, versionErr := strconv.Atoi(f[2])
	return location{id: f[1], bucket: bucket, version: version}, err == nil && versionErr == nil
}

func (s *subjects) reserveFlag() string { return s.subject("v.0") }

func (s *subjects) reservePieces() string { return s.subject("v.1") }

func (s *subjects) scheduleSubject(name string) string {
	sum := sha256.Sum256([]byte(name))
	return s.subject("s." + hex.EncodeToString(sum[:16]))
}

func (s *subjects) watermarkSubject() string { return s.subject("t") }

func streamName(queue string, part int) string { return "TW_" + queue + "_" + strconv.Itoa(part) }

// working returns a function that matches a worker's requests that no single caller waits for:
// subjects c, w, m, p and t of the stream, and its API. Adds of the same process may be denied
// without harm to the worker.
func (s *subjects) working() func(string) bool {
	asked := stream.APIOf(s.root)
	return func(denied string) bool {
		below, found := strings.CutPrefix(denied, s.root+".")
		return asked(denied) || found && below != "" && strings.Contains("cwmpt", below[:1])
	}
}
