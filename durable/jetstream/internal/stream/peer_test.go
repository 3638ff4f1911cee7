package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
)

// peer is a server without JetStream, and plays the part of JetStream: it answers with what a test says. So a test
// decides when an answer is late, lost, cut off, or that of a server that is behind.
type peer struct {
	srv *server.Server
	nc  *nats.Conn              // of the client
	end context.CancelCauseFunc // ends the engine

	mu      sync.Mutex
	answers map[string][]answer // by the subject of the question; the last one is given again and again
	asked   map[string][]*nats.Msg
}

// answer returns the messages that answer a question; none: the answer is lost.
type answer func(question *nats.Msg) []*nats.Msg

// subjects of the questions about the stream TW.
const (
	info   = "$JS.API.STREAM.INFO.TW"
	leader = "$JS.API.STREAM.MSG.GET.TW"
	direct = "$JS.API.DIRECT.GET.TW"
	next   = "$JS.API.CONSUMER.MSG.NEXT.TW.c"
)

// newStream returns a stream with some replicas, and its peer. The peer says that the stream is as it must be, and ends
// with the test. A user is denied what the permissions say.
func newStream(t *testing.T, replicas int, denied *server.Permissions) (*Stream, *peer) {
	t.Helper()
	users := []*server.User{{Username: "peer", Password: "x"}, {Username: "client", Password: "x", Permissions: denied}}
	srv, err := server.NewServer(&server.Options{ServerName: "peer", DontListen: true, NoSigs: true, NoLog: true, Users: users, AuthTimeout: 60})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(2*time.Minute))
	dial := func(user string) *nats.Conn {
		nc, err := nats.Connect("", nats.InProcessServer(srv), nats.UserInfo(user, "x"), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), nats.Timeout(time.Minute))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	p := &peer{srv: srv, nc: dial("client"), answers: map[string][]answer{}, asked: map[string][]*nats.Msg{}}
	p.says(info, described(1, 0, nil))
	js := dial("peer")
	for _, subjects := range []string{"$JS.API.>", "TW.>"} {
		_, err = js.Subscribe(subjects, p.answer)
		require.NoError(t, err)
	}
	require.NoError(t, js.Flush())
	ended, end := context.WithCancelCause(context.Background())
	t.Cleanup(func() { end(driver.ErrClosed) })
	p.end = end
	s := New(NewConn(p.nc, ended), WatchDenials(p.nc), "$JS.API.", "TW", 1)
	s.LearnReplicas(replicas)
	s.Landmarks, s.Room = "TW.c.", func(context.Context) bool { return false }
	s.Clock, err = clock.New(t.Context(), func(context.Context) (time.Time, time.Duration, error) { return time.Now(), 0, nil })
	require.NoError(t, err)
	return s, p
}

// says sets the answers to the questions of a subject.
func (p *peer) says(subject string, answers ...answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[subject] = answers
}

// questions returns those of a subject that have come.
func (p *peer) questions(subject string) []*nats.Msg {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[subject]
}

func (p *peer) answer(m *nats.Msg) {
	p.mu.Lock()
	p.asked[m.Subject] = append(p.asked[m.Subject], m)
	answers := p.answers[m.Subject]
	if len(answers) > 1 {
		p.answers[m.Subject] = answers[1:]
	}
	p.mu.Unlock()
	if len(answers) == 0 {
		return
	}
	for _, a := range answers[0](m) {
		_ = m.RespondMsg(&nats.Msg{Header: a.Header, Data: a.Data}) // a is given several times
	}
}

// cut cuts the client's connection, which it makes anew.
func (p *peer) cut(t *testing.T) {
	id, err := p.nc.GetClientID()
	require.NoError(t, err)
	require.NoError(t, p.srv.DisconnectClientByID(id))
}

// message returns one with data and a header, of names and values by turns.
func message(data string, header ...string) *nats.Msg {
	m := &nats.Msg{Data: []byte(data), Header: nats.Header{}}
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	return m
}

// exactly answers with these.
func exactly(msgs ...*nats.Msg) answer { return func(*nats.Msg) []*nats.Msg { return msgs } }

func silence(*nats.Msg) []*nats.Msg { return nil }

// refusal is an error of the server.
func refusal(code int, description string) answer {
	return exactly(message(fmt.Sprintf(`{"error":{"code":500,"err_code":%d,"description":%q}}`, code, description)))
}

// stored is the answer to a write: that its last message has a sequence.
func stored(seq uint64) answer { return exactly(message(fmt.Sprintf(`{"stream":"TW","seq":%d}`, seq))) }

// status is a message of the server's that ends an answer.
func status(code, description string, header ...string) *nats.Msg {
	return message("", append([]string{"Status", code, "Description", description}, header...)...)
}

// read is a message of the stream as a direct read answers it. Last is the sequence of the one before it in the answer.
func read(subject string, seq, last int, data string) *nats.Msg {
	return message(data, "Nats-Stream", "TW", "Nats-Subject", subject, "Nats-Sequence", strconv.Itoa(seq),
		"Nats-Time-Stamp", "2026-01-01T09:00:00Z", "Nats-Last-Sequence", strconv.Itoa(last))
}

// end ends an answer to a direct read whose last message has a sequence.
func end(last int) *nats.Msg { return status("204", "EOB", "Nats-Last-Sequence", strconv.Itoa(last)) }

// described is the server's account of the stream, with a version, its last sequence, and what differs.
func described(version int, last uint64, changed map[string]any) answer {
	config := map[string]any{
		"name": "TW", "subjects": []string{"TW.>"}, "retention": "limits", "storage": "file", "discard": "new", "max_msgs": -1, "max_bytes": -1,
		"max_msgs_per_subject": -1, "max_msg_size": -1, "max_consumers": -1, "allow_direct": true, "allow_msg_ttl": true, "allow_atomic": true,
		"allow_rollup_hdrs": true, "metadata": map[string]string{MetaVersion: strconv.Itoa(version)},
	}
	created, state := "2026-01-01T08:00:00Z", map[string]any{"bytes": 4096, "last_seq": last}
	for name, value := range changed {
		switch name {
		case "created":
			created = value.(string)
		case "messages", "bytes", "first_seq", "last_ts":
			state[name] = value
		default:
			config[name] = value
		}
	}
	data, err := json.Marshal(map[string]any{
		"config": config, "created": created, "ts": "2026-01-01T09:00:00Z", "cluster": map[string]any{"leader": "n0"},
		"state": state,
	})
	if err != nil {
		panic(err)
	}
	return exactly(message(string(data)))
}
