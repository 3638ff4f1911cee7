package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/internal/stack"
)

// Of the answers of a server, these have to be told apart.
var (
	errConflict = errors.New("jetstream: another write came first")
	errBusy     = errors.New("jetstream: the server is busy with the same") // soon over, or two groups of a batch write one subject
	errTooMany  = errors.New("jetstream: too many subjects for one answer")
)

const (
	maxWrites     = 1000             // of an atomic batch: the server's limit
	maxWriteBytes = 4 << 20          // of an atomic batch
	maxBatches    = 8                // under way at once; the server takes 50 for a stream
	answerTimeout = 5 * time.Second  // of a question
	commitTimeout = 10 * time.Second // of a write; longer than an election

	codeWrongLast      = 10071
	codeWrongLastBusy  = 10164
	codeTooManyBatches = 10210
	codeIncomplete     = 10176
	codeNotFound       = 10037
	codeNoConsumer     = 10014
	codeNoStream       = 10059
	codeNameInUse      = 10058
	codeSameSubject    = 10111
)

// write is a message to be stored, and on which condition.
type write struct {
	subject string
	data    []byte

	// The last message of guard, or of the subject if guard is empty, has to have the
	// sequence last, 0 for none. Nil: no condition.
	last  *uint64
	guard string

	rollup bool          // it replaces all earlier messages of the subject
	ttl    time.Duration // 0: for ever
}

func seq(n uint64) *uint64 { return &n }

func (w *write) msg() *nats.Msg {
	m := nats.NewMsg(w.subject)
	m.Data = w.data
	if w.last != nil {
		m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(*w.last, 10))
		if w.guard != "" {
			m.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", w.guard)
		}
	}
	if w.rollup {
		m.Header.Set("Nats-Rollup", "sub")
	}
	if w.ttl > 0 {
		m.Header.Set("Nats-TTL", strconv.FormatInt(ttlSeconds(w.ttl), 10))
	}
	return m
}

// longestTTL is such that the server's sum of it and the time does not overflow: that is in
// nanoseconds, which end in the year 2262.
const longestTTL = 100 * 365 * 24 * time.Hour

// ttlSeconds returns a TTL, which is positive, in whole seconds, rounded up.
func ttlSeconds(d time.Duration) int64 {
	return int64((min(d, longestTTL) + time.Second - 1) / time.Second)
}

// group is what is written together or not at all.
type group []write

func (g group) size() (n int) {
	for i := range g {
		n += len(g[i].data) + 256
	}
	return n
}

// commit writes groups, as many as possible in one commit, and returns what became of
// each: nil; errConflict, if a condition does not hold; durable.ErrUncertain, ErrFull, ErrInvalid
// if it is too large; or
// another error, and then it was not written. When something is wrong with one group the
// batch is refused as a whole, and is tried again in halves.
func (p *part) commit(ctx context.Context, groups []group) []result {
	if slices.ContainsFunc(groups, func(g group) bool { return p.checkSize(g) != nil }) {
		return p.commitFitting(ctx, groups)
	}
	results := make([]result, len(groups))
	for from := 0; from < len(groups); {
		to, writes, bytes := from, 0, 0
		for to < len(groups) && (to == from || writes+len(groups[to]) <= maxWrites && bytes+groups[to].size() <= maxWriteBytes) {
			writes += len(groups[to])
			bytes += groups[to].size()
			to++
		}
		p.commitBatch(ctx, groups[from:to], results[from:to])
		from = to
	}
	return results
}

// result is what became of a group.
type result struct {
	first uint64 // the sequence of its first message; those of a batch follow one another; 0 with an error
	err   error
}

// write commits one group.
func (p *part) write(ctx context.Context, g ...write) error {
	return p.commit(ctx, []group{g})[0].err
}

// writeSeq is write, and returns the sequence of the first message.
func (p *part) writeSeq(ctx context.Context, g ...write) (uint64, error) {
	res := p.commit(ctx, []group{g})[0]
	return res.first, res.err
}

// fewWrites is up to how many single messages are quicker than an atomic batch of them,
// for which the server makes a file store of its own: that takes as long as some ten
// syncs.
const fewWrites = 12

// commitFew writes groups of one message each by itself, all at once.
func (p *part) commitFew(ctx context.Context, groups []group, results []result) {
	var wg sync.WaitGroup
	for i := range groups {
		wg.Go(func() { stack.Grow(); p.commitBatch(ctx, groups[i:i+1], results[i:i+1]) })
	}
	wg.Wait()
}

func (p *part) commitBatch(ctx context.Context, groups []group, results []result) {
	if n := len(groups); n > 1 && n <= fewWrites && !slices.ContainsFunc(groups, func(g group) bool { return len(g) > 1 }) {
		p.commitFew(ctx, groups, results)
		return
	}
	err := p.commitAtOnce(ctx, groups, results)
	if len(groups) > 1 && (errors.Is(err, errConflict) || errors.Is(err, errBusy)) && !errors.Is(err, errWentBack) {
		half := len(groups) / 2
		p.commitBatch(ctx, groups[:half], results[:half])
		p.commitBatch(ctx, groups[half:], results[half:])
	}
}

// commitAtOnce writes all groups or none.
func (p *part) commitAtOnce(ctx context.Context, groups []group, results []result) error {
	last, err := p.publishPatiently(ctx, groups)
	next := last + 1
	for i := len(groups) - 1; i >= 0; i-- {
		if err != nil {
			results[i] = result{err: err}
			continue
		}
		next -= uint64(len(groups[i]))
		results[i] = result{first: next}
	}
	return err
}

// publishPatiently publishes, again after a while if the server was busy with the same
// subjects, or has no leader: then nothing was written.
func (p *part) publishPatiently(ctx context.Context, groups []group) (last uint64, err error) {
	ctx, stop := p.denials.during(ctx, func(denied string) bool {
		return slices.ContainsFunc(groups, func(g group) bool {
			return slices.ContainsFunc(g, func(w write) bool { return w.subject == denied })
		})
	})
	defer stop()
	for try, room, pause := 0, false, 2*time.Millisecond; ; try, pause = try+1, min(2*pause, 200*time.Millisecond) {
		if p.closed.Err() != nil {
			return 0, p.closedBy()
		}
		if err := p.checkVersion(ctx); err != nil {
			return 0, err
		}
		last, err = p.publish(ctx, groups)
		err = deniedWrite(ctx, err)
		if errors.Is(err, driver.ErrFull) && !room && p.makeRoom(ctx) && len(groups) == 1 {
			room = true
			continue
		}
		busy := errors.Is(err, errBusy) && try < 4
		if !busy && !errors.Is(err, nats.ErrNoResponders) {
			return last, err
		}
		if p.wait(ctx, pause); ctx.Err() != nil {
			return 0, deniedWrite(ctx, err) // of a batch the server may call incomplete what it has denied a part of
		}
	}
}

// publish writes all that is in the groups, or nothing: one message by itself, several as
// an atomic batch. Only the last message of a batch is answered.
func (p *part) publish(ctx context.Context, groups []group) (uint64, error) {
	var msgs []*nats.Msg
	for _, g := range groups {
		for i := range g {
			msgs = append(msgs, g[i].msg())
		}
	}
	if err := p.checkDisk(); err != nil {
		return 0, err
	}
	last := msgs[len(msgs)-1]
	if len(msgs) > 1 {
		id := rand.Text()
		for i, m := range msgs {
			m.Header.Set("Nats-Batch-Id", id)
			m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		}
		last.Header.Set("Nats-Batch-Commit", "1")
		select {
		case p.batches <- struct{}{}:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		defer func() { <-p.batches }()
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := p.checkPast(ctx); err != nil {
		return 0, err
	}
	was := p.history.now()
	answer, err := call(ctx, p.nc, p.deposed(), func() (*nats.Msg, error) {
		if p.nc.nc.IsClosed() {
			return nil, &unsentError{nats.ErrConnectionClosed}
		}
		for _, m := range msgs[:len(msgs)-1] {
			if err := p.nc.nc.PublishMsg(m); err != nil {
				return nil, &unsentError{err}
			}
		}
		return p.nc.nc.RequestMsgWithContext(ctx, last)
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.As(err, new(*unsentError)):
		return 0, err
	case err != nil: // also of a connection that was closed while the answer was awaited
		return 0, fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	var ack struct {
		Error *apiError `json:"error"`
		Seq   uint64    `json:"seq"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return 0, fmt.Errorf("%w: cannot read the answer: %w", driver.ErrUncertain, err)
	}
	if ack.Error == nil {
		p.wrote(was, groups, ack.Seq)
	}
	return ack.Seq, ack.Error.err()
}

// unsentError is that of a write that was certainly not done.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// apiError is what is wrong, in an answer of the server.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode)
}

// err sorts the server's errors into those of package durable.
func (e *apiError) err() error {
	if e == nil {
		return nil
	}
	switch e.ErrCode {
	case codeWrongLast:
		return errConflict
	case codeWrongLastBusy, codeTooManyBatches, codeIncomplete, codeSameSubject:
		return errBusy
	case codeNotFound, codeNoConsumer:
		return driver.ErrNotFound
	case 10002, 10023, 10028, 10047, 10122:
		return fmt.Errorf("%w: %w", driver.ErrFull, e)
	case 10077: // store failed: the description says of what
		if strings.Contains(e.Description, "maximum") || strings.Contains(e.Description, "no space") {
			return fmt.Errorf("%w: %w", driver.ErrFull, e)
		}
		return fmt.Errorf("%w: %w", driver.ErrStorage, e)
	}
	return e
}

// isCode reports whether an error is that of the server with a code.
func isCode(err error, code int) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.ErrCode == code
}

// stored is a message of the stream.
type stored struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`

	ttl string // as it was written; of reads that do not ask the leader
}

// last returns the last message of a subject, from the stream's leader: what was written
// before, by anybody, is seen. The zero stored if there is none.
func (p *part) last(ctx context.Context, subject string) (stored, error) {
	if p.replicas > 1 {
		return p.ofLeader(ctx, map[string]any{"last_by_subj": subject})
	}
	return p.directly(ctx, "."+subject, nil) // the only server that has the stream is its leader
}

// directly reads one message from any server that has the stream; the zero stored if there is none.
func (p *part) directly(ctx context.Context, subject string, body []byte) (stored, error) {
	m, err := soonest(ctx, p, func(ctx context.Context, _ *atomic.Bool) (*nats.Msg, error) {
		return p.request(ctx, p.api+"DIRECT.GET."+p.name+subject, body)
	})
	if err != nil {
		return stored{}, err
	}
	s, err := parseStored(m)
	if errors.Is(err, driver.ErrNotFound) {
		err = nil
	}
	return s, err
}

// lastRead is last, of a subject that may be read already.
type lastRead func(subject string) (stored, error)

func (p *part) lastNow(ctx context.Context) lastRead {
	return func(subject string) (stored, error) { return p.last(ctx, subject) }
}

// lastOf reads some subjects in one request, where one server has the stream. Otherwise, and of all
// other subjects, each is read when its last message is needed.
func (p *part) lastOf(ctx context.Context, subjects ...string) (lastRead, error) {
	if p.replicas > 1 {
		return p.lastNow(ctx), nil
	}
	found, err := p.lasts(ctx, subjects)
	return func(subject string) (stored, error) {
		if slices.Contains(subjects, subject) {
			return found[subject], nil
		}
		return p.last(ctx, subject)
	}, err
}

// parseStored reads an answer to a direct get.
func parseStored(m *nats.Msg) (s stored, err error) {
	switch m.Header.Get("Status") {
	case "":
	case "404":
		return s, driver.ErrNotFound
	case "503":
		return s, nats.ErrNoResponders
	case "413":
		return s, errTooMany
	default:
		return s, fmt.Errorf("jetstream: reading: %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
	}
	s = stored{Subject: m.Header.Get("Nats-Subject"), Data: m.Data, ttl: m.Header.Get("Nats-TTL")}
	if s.Seq, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err == nil {
		s.Time, err = time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	}
	if err != nil {
		return s, fmt.Errorf("jetstream: reading: %w", err)
	}
	return s, nil
}

// wait waits, but not for longer than ctx and the engine last.
func (p *part) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-p.closed.Done():
	case <-t.C:
	}
}

// ofLeader returns a message as the stream's leader has it, the zero stored if there is none.
func (p *part) ofLeader(ctx context.Context, request map[string]any) (stored, error) {
	var answer struct {
		Message stored `json:"message"`
	}
	err := p.ask(ctx, "STREAM.MSG.GET."+p.name, request, &answer)
	if errors.Is(err, driver.ErrNotFound) {
		err = nil
	}
	return answer.Message, err
}

// noLeader is in the answer of a server that knows that the stream has no leader.
var noLeader = []byte(`"err_code":10008,`)

// ask calls the server's API, which answers with an error or with what is read into answer, if
// that is not nil. A request that is nil is empty.
func (p *part) ask(ctx context.Context, api string, request, answer any) (err error) {
	var body []byte
	if request != nil {
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	m, err := p.request(ctx, p.api+api, body)
	if err != nil {
		return err
	}
	return parseAnswer(m.Data, answer)
}

// parseAnswer reads what the server's API has answered.
func parseAnswer(data []byte, answer any) error {
	var failed struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(data, &failed); err != nil {
		return err
	}
	if failed.Error != nil || answer == nil {
		return failed.Error.err()
	}
	return json.Unmarshal(data, answer)
}

// request asks the server, again after the question was lost with the connection; and while nobody
// answers, or the stream has no leader, and a ctx that has a deadline has not ended.
func (p *part) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	for {
		m, err := p.requestOnce(ctx, subject, body)
		if err == nil && (len(m.Header) > 0 || !bytes.Contains(m.Data, noLeader)) {
			return m, nil
		}
		err = cmp.Or(err, nats.ErrNoResponders)
		if _, bounded := ctx.Deadline(); !bounded && !errors.Is(err, nats.ErrDisconnected) || ctx.Err() != nil || isDenial(err) || p.closed.Err() != nil || errors.Is(err, driver.ErrClosed) {
			return nil, err
		}
		p.wait(ctx, 100*time.Millisecond)
	}
}

// requestOnce returns the answer, or why there is none: also that the server denies the question.
func (p *part) requestOnce(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	if p.closed.Err() != nil {
		return nil, p.closedBy()
	}
	ctx, stop := p.denials.during(ctx, about(subject))
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := p.nc.request(ctx, p.deposed(), &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		err = denied(ctx, err)
	}
	return m, err
}

// direct reads many messages at once from any server that has the stream, so that what
// was written a moment ago may be missing. It asks again if a part of the answer was lost: with the
// connection, or since a message ended while the server was reading it.
func (p *part) direct(ctx context.Context, request map[string]any) (all []stored, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if p.closed.Err() != nil {
		return nil, p.closedBy()
	}
	api := p.api + "DIRECT.GET." + p.name
	ctx, stop := p.denials.during(ctx, about(api))
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 4*answerTimeout)
	defer cancel()
	_, several := request["multi_last"]
	for {
		all, err = soonest(ctx, p, func(ctx context.Context, heard *atomic.Bool) ([]stored, error) {
			return p.answers(ctx, api, body, several, heard)
		})
		if !errors.Is(err, nats.ErrDisconnected) && !errors.Is(err, errIncomplete) || ctx.Err() != nil || p.closed.Err() != nil {
			return all, err
		}
		p.wait(ctx, 100*time.Millisecond)
	}
}

var errIncomplete = errors.New("jetstream: a part of an answer is missing")

// answers returns the messages that answer one question of direct, which may name several subjects.
// A connection that is made anew gets the rest of an answer, without what was sent meanwhile. So each
// message, and the end of all, names the one before. It sets heard with each message.
func (p *part) answers(ctx context.Context, api string, body []byte, several bool, heard *atomic.Bool) (all []stored, err error) {
	msgs, lost := make(chan *nats.Msg, maxAnswer+1), p.nc.lost() // one says that these are all
	sub, err := p.nc.ask(ctx, api, body, msgs)
	if err != nil {
		return nil, err
	}
	defer unsubscribe(sub)
	before := "0"
	for {
		select {
		case m, ok := <-msgs:
			if !ok {
				return nil, p.nc.closed(nats.ErrConnectionClosed)
			}
			heard.Store(true)
			status, last := m.Header.Get("Status"), m.Header.Get("Nats-Last-Sequence")
			if (status == "204" || status == "") && last != before ||
				status == "404" && (len(all) > 0 || several && m.Header.Get("Description") != "No Results") {
				return nil, errIncomplete
			}
			if status == "204" || status == "404" {
				return all, nil
			}
			s, err := parseStored(m)
			if err != nil {
				return nil, err
			}
			all, before = append(all, s), m.Header.Get("Nats-Sequence")
		case <-lost:
			return nil, nats.ErrDisconnected
		case <-ctx.Done():
			return nil, denied(ctx, ctx.Err())
		}
	}
}

// pageSize is how many messages are read at once. A page of large ones ends with the one that
// exceeds pageBytes.
const (
	maxAnswer = 1024 // messages; the server's limit
	pageSize  = 500
	pageBytes = 4 << 20
)

// lasts returns the last message of each of the subjects that has one; see direct.
func (p *part) lasts(ctx context.Context, subjects []string) (map[string]stored, error) {
	found := make(map[string]stored, len(subjects))
	for len(subjects) > 0 {
		n := 0
		for size := 0; n < min(len(subjects), pageSize) && size <= p.nc.maxPayload()/2; n++ {
			size += len(subjects[n]) + len(`"",`)
		}
		all, err := p.direct(ctx, map[string]any{"multi_last": subjects[:n]})
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			found[s.Subject] = s
		}
		subjects = subjects[n:]
	}
	return found, nil
}

// witness is a message that is known to have been written.
type witness struct {
	subject string
	seq     uint64
}

// errBehind is that of a read that no server has answered that was known to be up to date.
var errBehind = errors.New("jetstream: the server that answers is behind, or what was written is gone")

// lastSince is last as of when the witness was written, or later, whoever answers. A message that
// is lasting is true whenever it was written, and so is known from any server.
//
// To ask the leader is not enough for that: a leader that is cut off from the others does
// not know for some seconds that it was deposed, and answers as things were before. So the
// witness is read with the subject, in one isolated read: a server that has it has all
// that was written before it. Where there is but one server it is never behind.
func (p *part) lastSince(ctx context.Context, w witness, subject string, lasting bool) (stored, error) {
	if p.replicas == 1 {
		return p.last(ctx, subject)
	}
	found, err := p.lastsSince(ctx, w, lasting, subject)
	return found[subject], err
}

// lastsSince is lastSince of several subjects, of which the first may be lasting.
func (p *part) lastsSince(ctx context.Context, w witness, lasting bool, subjects ...string) (map[string]stored, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*answerTimeout)
	defer cancel()
	for {
		found, err := p.lasts(ctx, append([]string{w.subject}, subjects...))
		_, ok := found[subjects[0]]
		if lasting && ok || err == nil && found[w.subject].Seq >= w.seq {
			return found, nil
		}
		if p.wait(ctx, 10*time.Millisecond); ctx.Err() != nil || p.closed.Err() != nil {
			return nil, cmp.Or(err, errBehind)
		}
	}
}

// knows returns errBehind if the server that says that it leads has not what is known to
// have been written.
func (p *part) knows(ctx context.Context, w witness) error {
	m, err := p.last(ctx, w.subject)
	if err == nil && m.Seq < w.seq {
		return errBehind
	}
	return err
}

// pages yields the messages of a filter in the stream's order, from a sequence or, if that
// is 0, from a time on; see direct.
func (p *part) pages(ctx context.Context, filter string, from uint64, since time.Time) iter.Seq2[[]stored, error] {
	return func(yield func([]stored, error) bool) {
		for {
			request := map[string]any{"next_by_subj": filter, "batch": pageSize, "max_bytes": pageBytes}
			if from > 0 {
				request["seq"] = from
			} else {
				request["start_time"] = since.UTC()
			}
			page, err := p.direct(ctx, request)
			if _, bounded := ctx.Deadline(); errors.Is(err, context.DeadlineExceeded) && bounded && ctx.Err() == nil && p.closed.Err() == nil {
				continue // the end of the answer was lost
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 || !yield(page, nil) {
				return
			}
			from = page[len(page)-1].Seq + 1
		}
	}
}

// inParts yields what the partitions yield, one after the other, up to the first error.
func inParts[T any](e *engine, of func(*part) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, p := range e.parts {
			for v, err := range of(p) {
				if !yield(v, err) || err != nil {
					return
				}
			}
		}
	}
}
