package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// atOnce is how many connections are being opened at a time: well below the queue of a
// listener, since what overflows that is tried again after a second only.
const atOnce = 128

// load is a number of readers, each of whom polls one topic, and a writer.
type load struct {
	url       string
	wait      time.Duration // of a poll, at most
	client    *http.Client
	readers   []*reader
	posted    map[string]int // messages, by topic
	delivered atomic.Int64
}

// reader polls a topic from its beginning, and has what became of that.
type reader struct {
	*load
	topic string

	received int
	expired  []time.Duration // of polls that were answered with nothing: later than the wait
	closed   bool            // the last poll was answered as the broker closed
	failed   error
}

func newLoad(url string, readers, topics int, wait time.Duration) *load {
	dialing := make(chan struct{}, atOnce)
	transport := &http.Transport{
		MaxIdleConnsPerHost: readers + 1, // and that of the writer
		MaxConnsPerHost:     readers + 1, // or it opens more while it waits for one to be free
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialing <- struct{}{}
			defer func() { <-dialing }()
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		},
	}
	l := &load{url: url, wait: wait, client: &http.Client{Transport: transport}, posted: map[string]int{}}
	for i := range readers {
		l.readers = append(l.readers, &reader{load: l, topic: topicOf(i % topics)})
	}
	return l
}

func topicOf(i int) string { return "topic-" + strconv.Itoa(i) }

// post has messages posted until ctx ends, so many each second, to topics at random: but
// only to every other one, so that some have none.
func (l *load) post(ctx context.Context, topics, rate int) error {
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		topic := topicOf(rand.IntN((topics+1)/2) * 2)
		message := strconv.Itoa(l.posted[topic])
		response, err := l.client.Post(l.url+topic, "text/plain", strings.NewReader(message))
		if err != nil {
			return err
		}
		discard(response)
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("POST: %s", response.Status)
		}
		l.posted[topic]++
	}
}

// read runs all readers until the broker closes, or ctx ends.
func (l *load) read(ctx context.Context) {
	var all sync.WaitGroup
	for _, r := range l.readers {
		all.Go(func() {
			for r.failed == nil && !r.closed {
				r.failed = r.poll(ctx)
			}
		})
	}
	all.Wait()
}

// poll is one.
func (r *reader) poll(ctx context.Context) error {
	wait := r.wait/2 + rand.N(r.wait/2+1) // so that those who came together do not expire together
	url := fmt.Sprintf("%s%s?offset=%d&wait=%v", r.url, r.topic, r.received, wait)
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	var begun time.Time // once there is a connection
	trace := httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { begun = time.Now() }}
	request = request.WithContext(httptrace.WithClientTrace(ctx, &trace))
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer discard(response)
	switch response.StatusCode {
	case http.StatusOK:
		return r.receive(response.Body)
	case http.StatusNoContent:
		r.expired = append(r.expired, time.Since(begun)-wait)
	case http.StatusServiceUnavailable:
		r.closed = true
	default:
		return fmt.Errorf("GET: %s", response.Status)
	}
	return nil
}

func (r *reader) receive(body io.Reader) error {
	var a answer
	if err := json.NewDecoder(body).Decode(&a); err != nil {
		return err
	}
	for i, message := range a.Messages {
		if want := strconv.Itoa(r.received + i); message != want {
			return fmt.Errorf("received %s, and not %s", message, want)
		}
	}
	r.received += len(a.Messages)
	r.delivered.Add(int64(len(a.Messages)))
	if a.Next != r.received {
		return fmt.Errorf("received %d messages, and the next is %d", r.received, a.Next)
	}
	return nil
}

// isDelivered reports whether all readers have all that was posted.
func (l *load) isDelivered() bool {
	missing := -l.delivered.Load()
	for _, r := range l.readers {
		missing += int64(l.posted[r.topic])
	}
	return missing == 0
}

// discard reads a body to its end, so that the connection is used again.
func discard(response *http.Response) {
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
}
