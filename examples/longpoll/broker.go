package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	maxMessage = 64 << 10 // bytes
	maxAnswer  = 1000     // messages
	maxTopics  = 10_000
	maxWait    = 5 * time.Minute

	defaultWait = 30 * time.Second
)

// broker keeps messages in topics, in memory, and answers those who poll for them.
type broker struct {
	parked *purgatory.Purgatory[string] // by the name of the topic

	mu     sync.Mutex
	topics map[string]*topic // guarded by mu
}

// topic is a log of messages.
type topic struct {
	mu       sync.Mutex
	messages []string // guarded by mu
}

// answer is the body of a poll that has found something.
type answer struct {
	Next     int      `json:"next"` // offset to poll from the next time
	Messages []string `json:"messages"`
}

func newBroker(wheel *timingwheel.TimingWheel) *broker {
	return &broker{parked: purgatory.New[string](wheel), topics: map[string]*topic{}}
}

func (b *broker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /topics/{topic}", b.post)
	mux.HandleFunc("GET /topics/{topic}", b.poll)
	return mux
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// post appends the body of the request to a topic, and answers with its offset.
func (b *broker) post(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("topic")
	if !topicName.MatchString(name) {
		badTopic(w, name)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, fmt.Sprintf("a message has at most %d bytes", tooLarge.Limit), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		return // the client has gone
	}
	t := b.topic(name, true)
	if t == nil {
		http.Error(w, fmt.Sprintf("there are %d topics already", maxTopics), http.StatusInsufficientStorage)
		return
	}
	offset := t.append(string(body))
	b.parked.Notify(name) // after the change, and with no lock held
	fmt.Fprintln(w, offset)
}

// poll answers with the messages from an offset on, as soon as there is one.
func (b *broker) poll(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("topic")
	if !topicName.MatchString(name) {
		badTopic(w, name)
		return
	}
	offset, err := number(r.FormValue("offset"))
	if err != nil {
		http.Error(w, "offset: "+err.Error(), http.StatusBadRequest)
		return
	}
	wait, err := duration(r.FormValue("wait"))
	if err != nil {
		http.Error(w, "wait: "+err.Error(), http.StatusBadRequest)
		return
	}
	there := func() bool {
		t := b.topic(name, false)
		return t != nil && t.end() > offset
	}
	switch err := b.parked.Wait(r.Context(), wait, there, name); {
	case err == nil:
		t := b.topic(name, false)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(t.from(offset))
	case errors.Is(err, purgatory.ErrExpired):
		w.WriteHeader(http.StatusNoContent)
	case r.Context().Err() != nil: // the client has gone
	default: // closed, stopped or too much pending
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func badTopic(w http.ResponseWriter, name string) {
	http.Error(w, fmt.Sprintf("topic %.80q does not match %v", name, topicName), http.StatusBadRequest)
}

func number(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%.40q is not a number from 0", s)
	}
	return n, nil
}

func duration(s string) (time.Duration, error) {
	if s == "" {
		return defaultWait, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxWait {
		return 0, fmt.Errorf("%.40q is not a duration from 0s to %v", s, maxWait)
	}
	return d, nil
}

// topic returns a topic, and nil if there is none or no room for another.
func (b *broker) topic(name string, create bool) *topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil && create && len(b.topics) < maxTopics {
		t = &topic{}
		b.topics[name] = t
	}
	return t
}

func (t *topic) append(message string) (offset int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.messages = append(t.messages, message)
	return len(t.messages) - 1
}

func (t *topic) end() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.messages)
}

// from returns what there is from an offset on that is not after the end.
func (t *topic) from(offset int) answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := min(len(t.messages), offset+maxAnswer)
	return answer{next, t.messages[offset:next]}
}
