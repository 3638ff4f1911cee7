package stream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// client asks a server about one stream, and reads it. It writes nothing, and knows nothing of the
// messages that the stream holds.
//
// All but replicas and reigns is fixed once the stream is open. A question ends with its ctx, with the engine,
// and when no answer can come any more; no lock is held while one is under way.
//
// There are three ways to read, by price. Any server answers Directly, Lasts and Pages, so they
// share the load of the leader, and may be behind. The leader answers OfLeader, Last and Ask, and
// is not behind unless it was deposed. LastSince is answered by a server, whichever it is, that
// stores a certain write.
type client struct {
	Conn     *Conn
	API      string // what the server's API is called
	Denials  *Denials
	Name     string       // of the stream
	replicas atomic.Int64 // of the stream: the most that was known
	reigns   atomic.Pointer[reign]
}

// Replicas returns on how many servers the stream is, or was: 0 while nothing is known.
func (c *client) Replicas() int { return int(c.replicas.Load()) }

// LearnReplicas notes on how many servers the stream is. An operator may change that at any time. A lower number does not
// count: a server that the stream has left may answer for a while, and a deposed leader may say what was before. To take
// one server for several costs questions, and no job.
func (c *client) LearnReplicas(n int) {
	for was := c.replicas.Load(); was < int64(n) && !c.replicas.CompareAndSwap(was, int64(n)); {
		was = c.replicas.Load()
	}
}

// request asks the server, again after the question was lost with the connection; and while nobody
// answers, or the stream has no leader, and a ctx that has a deadline has not ended. A caller
// without a deadline would wait for ever for a stream that is gone, so it gets the error. Questions
// change nothing, or no more when they come twice: so this may repeat them, as publish and removal may not.
func (c *client) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	for {
		m, err := c.requestOnce(ctx, subject, body)
		if err == nil && (len(m.Header) > 0 || !bytes.Contains(m.Data, noLeader)) {
			return m, nil
		}
		err = cmp.Or(err, nats.ErrNoResponders)
		if _, bounded := ctx.Deadline(); !bounded && !errors.Is(err, nats.ErrDisconnected) || ctx.Err() != nil || IsDenial(err) || c.Conn.Ended.Err() != nil || errors.Is(err, driver.ErrClosed) {
			return nil, err
		}
		c.Wait(ctx, 100*time.Millisecond)
	}
}

// requestOnce returns the answer, or the reason why no answer comes: also that the server denies the question,
// and that the stream has another leader since. The new one does not know the question.
func (c *client) requestOnce(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	if c.Conn.Ended.Err() != nil {
		return nil, c.ClosedBy()
	}
	ctx, stop := c.Denials.During(ctx, about(subject))
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	m, err := c.Conn.Request(ctx, c.deposed(), &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		err = Denied(ctx, err)
	}
	return m, err
}

// Ask calls the server's API, which answers with an error or with a value. That is read into answer,
// unless it is nil. A request that is nil is empty. It may be sent several times, so a request that
// changes something, such as to remove a consumer, may find that done.
func (c *client) Ask(ctx context.Context, api string, request, answer any) (err error) {
	var body []byte
	if request != nil {
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	m, err := c.request(ctx, c.API+api, body)
	if err != nil {
		return err
	}
	return ParseAnswer(m.Data, answer)
}

// ParseAnswer reads what the server's API has answered. An answer with an error has nothing else
// that counts.
func ParseAnswer(data []byte, answer any) error {
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

// OfLeader returns a message as the stream's leader has it, or the zero Message without one. A
// leader that was deposed and does not know it has all that was written before that, so what it
// shows was true once.
func (c *client) OfLeader(ctx context.Context, request map[string]any) (Message, error) {
	var answer struct {
		Message Message `json:"message"`
	}
	err := c.Ask(ctx, "STREAM.MSG.GET."+c.Name, request, &answer)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return Message{}, nil
	case err == nil && answer.Message.Seq == 0:
		err = errors.New("jetstream: reading: the leader's answer has no message")
	}
	return answer.Message, err
}

// Last returns the last message of a subject, from the stream's leader, or the zero Message without
// one. It sees all earlier writes of anybody, unless the leader was deposed (LastSince).
func (c *client) Last(ctx context.Context, subject string) (Message, error) {
	if c.Replicas() > 1 {
		return c.OfLeader(ctx, map[string]any{"last_by_subj": subject})
	}
	return c.Directly(ctx, "."+subject, nil) // the only server that has the stream is its leader
}

// Directly reads one message from any server that has the stream, or the zero Message without one.
// A message that is found was there once. Where several servers have the stream, the zero Message
// says nothing.
func (c *client) Directly(ctx context.Context, subject string, body []byte) (Message, error) {
	m, err := soonest(ctx, c.Replicas(), func(ctx context.Context, _ *atomic.Bool) (*nats.Msg, error) {
		return c.request(ctx, c.API+"DIRECT.GET."+c.Name+subject, body)
	})
	if err != nil {
		return Message{}, err
	}
	return parseStored(m)
}

// LastNow is Last, with a request for each subject.
func (c *client) LastNow(ctx context.Context) LastRead {
	return func(subject string) (Message, error) { return c.Last(ctx, subject) }
}

// LastOf reads some subjects in one request, where one server has the stream. Otherwise, and of all
// other subjects, each is read when its last message is needed: the leader has no request for
// several, and a caller that knows enough after the first subject saves the others. An error is
// that of the one request; where there are several servers it is nil, and each LastRead has its
// own.
func (c *client) LastOf(ctx context.Context, subjects ...string) (LastRead, error) {
	if c.Replicas() > 1 {
		return c.LastNow(ctx), nil
	}
	found, err := c.Lasts(ctx, subjects)
	return func(subject string) (Message, error) {
		if slices.Contains(subjects, subject) {
			return found[subject], nil
		}
		return c.Last(ctx, subject)
	}, err
}

// LastRead is Last, of a subject that may be read already: then its message is as old as the LastOf.
type LastRead func(subject string) (Message, error)

// Lasts returns the last message of each of the subjects that has one; see direct. It takes a
// request for each PageSize subjects, fewer if they or their messages are long: half of max_payload
// leaves room for the rest of the question. One answer is of one moment; those of several requests are
// not. A filter that selects too much for one answer is ErrTooMany.
func (c *client) Lasts(ctx context.Context, subjects []string) (map[string]Message, error) {
	found := make(map[string]Message, len(subjects))
	for most := PageSize; len(subjects) > 0; {
		n := 0
		for size := 0; n < min(len(subjects), most) && size <= c.Conn.MaxPayload()/2; n++ {
			size += len(subjects[n]) + len(`"",`)
		}
		all, err := c.direct(ctx, map[string]any{"multi_last": subjects[:n], "max_bytes": pageBytes})
		if errors.Is(err, ErrTooMany) && n > 1 {
			most = n / 2
			continue
		}
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

// Witness is a message that is known to have been written: only a write that was answered makes one.
type Witness struct {
	Subject string
	Seq     uint64
}

// ErrBehind is that of a read that no server has answered that was known to be up to date.
var ErrBehind = errors.New("jetstream: the server that answers is behind, or what was written is gone")

// LastSince is last as of when the witness was written, or later, whoever answers. A message that
// is lasting is true whenever it was written, and so is known from any server.
//
// To ask the leader is not enough for that: a leader that is cut off from the others does
// not know for some seconds that it was deposed, and answers as things were before. So the
// witness is read with the subject, in one isolated read: a server that has it has all
// that was written before it. Where there is but one server it is never behind.
func (c *client) LastSince(ctx context.Context, w Witness, subject string, lasting bool) (Message, error) {
	if c.Replicas() == 1 {
		return c.Last(ctx, subject)
	}
	found, err := c.LastsSince(ctx, w, lasting, subject)
	return found[subject], err
}

// LastsSince is LastSince of several subjects, of which the first may be lasting. They must be few
// enough for one request of Lasts: in a second one another server may answer, without the witness.
//
// After the answer of a server that is behind it asks again, a hundred times a second and for twice
// the AnswerTimeout; chance chooses the server. Mostly the first answer will do, so that this costs as much as
// Lasts.
func (c *client) LastsSince(ctx context.Context, w Witness, lasting bool, subjects ...string) (map[string]Message, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*AnswerTimeout)
	defer cancel()
	for {
		found, err := c.Lasts(ctx, append([]string{w.Subject}, subjects...))
		_, ok := found[subjects[0]]
		if lasting && ok || err == nil && found[w.Subject].Seq >= w.Seq {
			return found, nil
		}
		if c.Wait(ctx, 10*time.Millisecond); ctx.Err() != nil || c.Conn.Ended.Err() != nil {
			return nil, cmp.Or(err, ErrBehind)
		}
	}
}

// Knows returns ErrBehind if the server that says that it leads lacks the witness. That is so at
// the time of the call, and says nothing of another read: a caller that reads of the leader calls
// it before and after.
func (c *client) Knows(ctx context.Context, w Witness) error {
	m, err := c.Last(ctx, w.Subject)
	if err == nil && m.Seq < w.Seq {
		return ErrBehind
	}
	return err
}

// Pages yields the messages of a filter in the stream's order, from a sequence or, if that is 0,
// from a time on; see direct. It keeps one page in memory, and asks for the next when that is used
// up.
//
// The pages are of different moments: a message that is written meanwhile is yielded, and one that
// is removed is not. A page whose end was lost is read again from its begin, before any of it is
// yielded, so no message comes twice. It ends where the server that answers has nothing more, which
// may be behind.
func (c *client) Pages(ctx context.Context, filter string, from uint64, since time.Time) iter.Seq2[[]Message, error] {
	return func(yield func([]Message, error) bool) {
		for {
			request := map[string]any{"next_by_subj": filter, "batch": PageSize, "max_bytes": pageBytes}
			if from > 0 {
				request["seq"] = from
			} else {
				request["start_time"] = since.UTC()
			}
			page, err := c.direct(ctx, request)
			if _, bounded := ctx.Deadline(); errors.Is(err, context.DeadlineExceeded) && bounded && ctx.Err() == nil && c.Conn.Ended.Err() == nil {
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

// ClosedBy is the error of a call to an engine that has ended: the cause with which Conn.Ended was.
func (c *client) ClosedBy() error { return context.Cause(c.Conn.Ended) }

// A caller distinguishes these answers of a server. After ErrConflict the caller reads again
// what its write is based on; after ErrBusy that may be right still, and the same write may
// succeed; after ErrTooMany it asks for less at a time. Nothing was written in either case.
var (
	ErrConflict = errors.New("jetstream: another write came first")
	ErrBusy     = errors.New("jetstream: the server is busy; nothing was written") // soon over, or two groups of a batch write one subject
	ErrTooMany  = errors.New("jetstream: too many subjects for one answer")
)

// The codes of errors that are distinguished. Their texts may change with the server, and their codes
// do not. A batch is incomplete if one of its messages was lost on the way, or the server has
// denied it.
const (
	codeWrongLast      = 10071
	codeWrongLastBusy  = 10164
	codeTooManyBatches = 10210
	codeIncomplete     = 10176
	codeQueueFull      = 10167
	codeNotFound       = 10037
	codeNoConsumer     = 10014
	CodeNoStream       = 10059
	CodeNameInUse      = 10058
	codeSameSubject    = 10111
)

// apiError is what is wrong, in an answer of the server. Other packages see it by IsCode and
// IsRefusal only.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode)
}

// err sorts the server's errors into those of package durable. An error of another code stays as it
// is: only that the server has refused is known of it. ErrFull and ErrStorage
// wrap it, for the log.
func (e *apiError) err() error {
	if e == nil {
		return nil
	}
	switch e.ErrCode {
	case codeWrongLast:
		return ErrConflict
	case codeWrongLastBusy, codeTooManyBatches, codeIncomplete, codeSameSubject, codeQueueFull:
		return ErrBusy
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

// IsCode reports whether an error is that of the server with a code.
func IsCode(err error, code int) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.ErrCode == code
}

// Message is a message of the stream. A tombstone has a sequence and no data. The zero Message means
// that no message was found, which is no error: most readers look for messages that need not be there.
type Message struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`

	// The TTL as it was written. A read of the leader lacks it: that answer has no headers.
	TTL string
}

// parseStored reads an answer to a direct get, the zero Message if that says that there is no message. A message
// whose headers lack its sequence or its time is an error, and no message 0: that would say that a
// subject is free.
func parseStored(m *nats.Msg) (s Message, err error) {
	switch m.Header.Get("Status") {
	case "":
	case "404":
		return s, nil
	case "503":
		return s, nats.ErrNoResponders
	case "413":
		return s, ErrTooMany
	default:
		return s, fmt.Errorf("jetstream: reading: %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
	}
	s = Message{Subject: m.Header.Get("Nats-Subject"), Data: m.Data, TTL: m.Header.Get("Nats-TTL")}
	if s.Seq, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err == nil {
		s.Time, err = time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	}
	if err != nil {
		return s, fmt.Errorf("jetstream: reading: %w", err)
	}
	return s, nil
}

// Wait waits, but not for longer than ctx and the engine last. It does not say which ended it: a
// caller looks at those that it goes on for.
func (c *client) Wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-c.Conn.Ended.Done():
	case <-t.C:
	}
}

// noLeader is in the answer of a server that knows that the stream has no leader. It is looked for
// only in answers without headers: those with headers are messages of the stream, whose data may be
// any text.
var noLeader = []byte(`"err_code":10008,`)

// direct reads many messages at once from any server that has the stream, so that what was written
// a moment ago may be missing. It asks again if a part of the answer was lost: with the connection,
// or since a message ended while the server was reading it. All tries together have four times the
// AnswerTimeout: an answer of many large messages takes longer than one, though each comes soon.
func (c *client) direct(ctx context.Context, request map[string]any) (all []Message, err error) {
	if c.Conn.Ended.Err() != nil {
		return nil, c.ClosedBy()
	}
	api := c.API + "DIRECT.GET." + c.Name
	ctx, stop := c.Denials.During(ctx, about(api))
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 4*AnswerTimeout)
	defer cancel()
	for {
		all, err = soonest(ctx, c.Replicas(), func(ctx context.Context, heard *atomic.Bool) ([]Message, error) {
			return c.answers(ctx, api, request, heard)
		})
		if !errors.Is(err, nats.ErrDisconnected) && !errors.Is(err, errIncomplete) || ctx.Err() != nil || c.Conn.Ended.Err() != nil {
			return all, err
		}
		c.Wait(ctx, 100*time.Millisecond)
	}
}

var errIncomplete = errors.New("jetstream: a part of an answer is missing")

// answers returns the messages that answer one question of direct, which may name several subjects.
// A connection that is made anew gets the rest of an answer, without what was sent meanwhile. So
// each message, and the end of all, names the one before. It sets heard with each message, so that
// a long answer that has begun is not asked for beside it. A part of an answer is never returned: a
// subject that is missing would look as if it had no message.
func (c *client) answers(ctx context.Context, api string, request map[string]any, heard *atomic.Bool) (all []Message, err error) {
	msgs, lost := make(chan *nats.Msg, maxAnswer+1), c.Conn.lost() // one says that these are all
	sub, err := c.Conn.ask(ctx, api, request, msgs)
	if err != nil {
		return nil, err
	}
	defer Unsubscribe(sub)
	_, several := request["multi_last"]
	before, left := "0", ""
	for {
		select {
		case m := <-msgs:
			heard.Store(true)
			status, last := m.Header.Get("Status"), m.Header.Get("Nats-Last-Sequence")
			if (status == "204" || status == "") && last != before ||
				status == "404" && (len(all) > 0 || several && m.Header.Get("Description") != "No Results") {
				return nil, errIncomplete
			}
			if several && status == "204" && left != "" && left != "0" {
				return nil, ErrTooMany // the server ends an answer at max_bytes, and says no more than this
			}
			if status == "204" || status == "404" {
				return all, nil
			}
			s, err := parseStored(m)
			if err != nil {
				return nil, err
			}
			all, before, left = append(all, s), m.Header.Get("Nats-Sequence"), m.Header.Get("Nats-Num-Pending")
		case <-lost.Done():
			return nil, context.Cause(lost)
		case <-ctx.Done():
			return nil, Denied(ctx, ctx.Err())
		}
	}
}

// PageSize is how many messages are read at once. A page of large ones ends with the one that
// exceeds pageBytes.
const (
	maxAnswer = 1024 // messages; the server's limit
	PageSize  = 500
	pageBytes = 4 << 20
)

// reign is the time during which one server leads a stream. A server that leads twice has two:
// questions of the first one may be lost.
type reign struct {
	of   string        // the server and the begin
	over chan struct{} // closed when it has ended, and the last answers have come
}

// noteLeader notes who leads the stream, and since when. If several callers note a new leader at one time,
// one ends the reign before. An old answer that comes late may bring the old leader back, until the
// next one. Then callers that wait for the new leader find out what became of their questions, as
// after a lost connection.
func (c *client) noteLeader(of string) {
	was := c.reigns.Load()
	if was != nil && was.of == of || !c.reigns.CompareAndSwap(was, &reign{of, make(chan struct{})}) {
		return
	}
	if was != nil {
		time.AfterFunc(SilentAfter, func() { close(was.over) })
	}
}

// deposed returns a channel that is closed a while after the server was deposed that leads the
// stream now. It answers nothing any more, and whoever waits finds out what became of a write, as
// when a connection was lost. A server that was frozen deposes the leader when it goes on.
//
// That it was deposed is known by the next answer of Info, which each poll asks for: so this costs
// no request. A channel that is nil, while no leader is known, is never closed.
func (c *client) deposed() <-chan struct{} {
	if r := c.reigns.Load(); r != nil {
		return r.over
	}
	return nil
}

// unanswered are the errors of a question that nobody has answered: those of the context, of the
// client, and that of a write of which nobody knows whether it is stored.
var unanswered = []error{
	context.DeadlineExceeded, context.Canceled, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
	nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, driver.ErrUncertain,
}

// tooEarly are the codes of refusals that may end soon: no leader, not a member yet, not heard
// of the stream yet, or too few servers for so many replicas, since those that are missing may be
// starting.
var tooEarly = []int{10004, 10005, 10006, 10007, 10008, 10009, 10059, 10075, 10118, 10163, 10202}

// IsRefusal reports whether asking again is of no use: the server has said no, and does not say so
// because it has just started, or is without a leader; or what it has said cannot be worked with.
// So an error of this package, such as one of settings that differ, is a refusal, too: the next
// answer would be the same. Connect goes by that: it repeats its requests until one succeeds or is
// refused.
func IsRefusal(err error) bool {
	if refusal, said := errors.AsType[*apiError](err); said {
		return !slices.Contains(tooEarly, refusal.ErrCode)
	}
	return !slices.ContainsFunc(unanswered, func(u error) bool { return errors.Is(err, u) })
}

// RemoveConsumer removes a consumer. The leader of the cluster does it, and the server of the
// consumer answers. So it may be gone though there is no answer, which is why the caller says how
// long one is worth.
func (c *client) RemoveConsumer(ctx context.Context, consumer string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.Ask(ctx, "CONSUMER.DELETE."+c.Name+"."+consumer, nil, nil)
}
