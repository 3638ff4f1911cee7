package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	maxMessage = 64 << 10 // bytes
	maxAnswer  = 1000     // messages
	maxWait    = 5 * time.Minute
)

// broker keeps messages in topics, in memory, and answers those who poll for them.
type broker struct {
	parked *purgatory.Purgatory[string] // by the name of the topic

	mu     sync.Mutex
	topics map[string][]string // messages; guarded by mu
}

// answer is the body of a poll that has found something.
type answer struct {
	Next     int      `json:"next"` // offset to poll from the next time
	Messages []string `json:"messages"`
}

func newBroker(wheel *timingwheel.TimingWheel) *broker {
	return &broker{parked: purgatory.New[string](wheel), topics: map[string][]string{}}
}

func (b *broker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /topics/{topic}", b.post)
	mux.HandleFunc("GET /topics/{topic}", b.poll)
	return mux
}

// post appends the body of the request to a topic, and answers with its offset.
func (b *broker) post(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("topic")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	offset := b.append(name, string(body))
	b.parked.Notify(name) // after the change, and with no lock held
	fmt.Fprintln(w, offset)
}

// poll answers with the messages from an offset on, as soon as there is one.
func (b *broker) poll(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("topic")
	offset, err := strconv.Atoi(cmp.Or(r.FormValue("offset"), "0"))
	if err != nil || offset < 0 {
		http.Error(w, "offset: not a number from 0", http.StatusBadRequest)
		return
	}
	wait, err := time.ParseDuration(cmp.Or(r.FormValue("wait"), "30s"))
	if err != nil || wait < 0 || wait > maxWait {
		http.Error(w, fmt.Sprintf("wait: not a duration from 0s to %v", maxWait), http.StatusBadRequest)
		return
	}
	there := func() bool { return len(b.from(name, offset).Messages) > 0 }
	switch err := b.parked.Wait(r.Context(), wait, there, name); {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(b.from(name, offset))
	case errors.Is(err, purgatory.ErrExpired):
		w.WriteHeader(http.StatusNoContent)
	case r.Context().Err() != nil: // the client has gone
	default: // closed, stopped or too much pending
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func (b *broker) append(topic, message string) (offset int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[topic] = append(b.topics[topic], message)
	return len(b.topics[topic]) - 1
}

// from returns the messages of a topic from an offset on.
func (b *broker) from(topic string, offset int) answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.topics[topic]
	next := max(offset, min(len(all), offset+maxAnswer))
	return answer{next, all[min(offset, len(all)):min(next, len(all))]}
}
