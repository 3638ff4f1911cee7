package purgatory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// topic is a log that many append to and many read.
type topic struct {
	mu       sync.Mutex
	messages []string
}

func (t *topic) append(message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.messages = append(t.messages, message)
}

func (t *topic) from(offset int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.messages[min(offset, len(t.messages)):]
}

// A long poll: the reader waits until there is something past its offset, or gives up. In
// a handler of package net/http the context is r.Context(), so that one whose client has
// gone is parked no longer.
func Example_longPoll() {
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[string](w)
	var news topic

	poll := func(ctx context.Context, offset int, d time.Duration) []string {
		err := p.Wait(ctx, d, func() bool { return len(news.from(offset)) > 0 }, "news")
		if errors.Is(err, purgatory.ErrExpired) {
			return nil
		}
		return news.from(offset)
	}

	go func() {
		time.Sleep(10 * time.Millisecond)
		news.append("it rains") // first the change,
		p.Notify("news")        // and then the word of it
	}()
	fmt.Println(poll(context.Background(), 0, time.Minute))
	fmt.Println(poll(context.Background(), 1, 10*time.Millisecond))
	// Output:
	// [it rains]
	// []
}

// registry holds values under names. Each change has an index, which rises.
type registry struct {
	mu     sync.Mutex
	index  uint64
	values map[string]value
	parked *purgatory.Purgatory[string]
}

type value struct {
	text  string
	index uint64 // of its last change
}

func (r *registry) set(name, text string) {
	r.mu.Lock()
	r.index++
	r.values[name] = value{text, r.index}
	r.mu.Unlock()
	r.parked.Notify(name) // with no lock held
}

func (r *registry) get(name string) value {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values[name]
}

// query returns the value when it is newer than index, or the current value after d. The next query
// passes the returned index.
func (r *registry) query(ctx context.Context, name string, index uint64, d time.Duration) (value, error) {
	err := r.parked.Wait(ctx, d, func() bool { return r.get(name).index > index }, name)
	if err != nil && !errors.Is(err, purgatory.ErrExpired) {
		return value{}, err
	}
	return r.get(name), nil
}

// A blocking query, as in Consul: the client sends the index that it has seen. The server answers
// when there is a newer one, or after some time with the current value.
func Example_blockingQuery() {
	w := timingwheel.New()
	defer w.Stop()
	r := &registry{values: map[string]value{}, parked: purgatory.New[string](w)}
	r.set("leader", "node 1")

	ctx := context.Background()
	seen, _ := r.query(ctx, "leader", 0, time.Minute)
	fmt.Println(seen.text, seen.index)
	go func() {
		time.Sleep(10 * time.Millisecond)
		r.set("weather", "rain") // the query is not asked about that
		r.set("leader", "node 2")
	}()
	seen, _ = r.query(ctx, "leader", seen.index, time.Minute)
	fmt.Println(seen.text, seen.index)
	seen, _ = r.query(ctx, "leader", seen.index, 10*time.Millisecond) // nothing new
	fmt.Println(seen.text, seen.index)
	// Output:
	// node 1 1
	// node 2 3
	// node 2 3
}

// jobs is a queue that consumers pull from.
type jobs struct {
	mu     sync.Mutex
	queue  []string
	parked *purgatory.Purgatory[string]
}

func (j *jobs) put(names ...string) {
	j.mu.Lock()
	j.queue = append(j.queue, names...)
	j.mu.Unlock()
	j.parked.NotifyN("jobs", len(names)) // the others need not look
}

func (j *jobs) isEmpty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue) == 0
}

func (j *jobs) take() (name string, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		return "", false
	}
	name, j.queue = j.queue[0], j.queue[1:]
	return name, true
}

// next returns the next job, as soon as there is one. Consumers that wait are served in
// the order in which they came.
func (j *jobs) next(ctx context.Context, d time.Duration) (string, error) {
	deadline := time.Now().Add(d)
	for {
		err := j.parked.Wait(ctx, time.Until(deadline), func() bool { return !j.isEmpty() }, "jobs")
		if err != nil {
			return "", err
		}
		if name, ok := j.take(); ok { // one that came just now may have been first
			return name, nil
		}
	}
}

// A pull consumer asks for a job, and waits for one if there is none. One job wakes one waiting
// consumer, however many wait.
func Example_pullConsumer() {
	w := timingwheel.New()
	defer w.Stop()
	j := &jobs{parked: purgatory.New[string](w)}

	ctx := context.Background()
	go func() {
		time.Sleep(10 * time.Millisecond)
		j.put("paint", "sweep")
	}()
	fmt.Println(j.next(ctx, time.Minute))
	fmt.Println(j.next(ctx, time.Minute))
	fmt.Println(j.next(ctx, 10*time.Millisecond))
	// Output:
	// paint <nil>
	// sweep <nil>
	//  purgatory: expired: context deadline exceeded
}

func ExamplePurgatory_NotifyN() {
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[string](w)
	for _, name := range []string{"a", "b", "c"} {
		p.Park(time.Minute, nil, func(o purgatory.Outcome) { fmt.Println(name, o) }, "seats")
	}
	fmt.Println(p.NotifyN("seats", 2)) // two are free
	p.Close()
	// Output:
	// a Satisfied
	// b Satisfied
	// 2
	// c Closed
}

// A quorum: a write is answered when two of three replicas have it. Nothing waits but the
// operation itself.
func Example_quorum() {
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[string](w)

	var mu sync.Mutex
	acknowledged := 0
	quorum := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return acknowledged >= 2
	}
	acknowledge := func(replica string) {
		mu.Lock()
		acknowledged++
		mu.Unlock() // no lock is held that quorum takes
		fmt.Println(replica, "ended", p.Notify("write 7"))
	}

	p.Park(5*time.Second, quorum, func(o purgatory.Outcome) { fmt.Println("the write is", o) }, "write 7")
	acknowledge("a")
	acknowledge("b")
	acknowledge("c")
	// Output:
	// a ended 0
	// the write is Satisfied
	// b ended 1
	// c ended 0
}

// Answers come in any order and are matched by the id of their request. Without a condition the
// first Notify satisfies.
func Example_answersByID() {
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[int](w)

	for id := range 3 {
		p.Park(time.Minute, nil, func(o purgatory.Outcome) { fmt.Println("request", id, o) }, id)
	}
	p.Notify(2) // the reader of the connection does this for each answer
	p.Notify(0)
	p.Notify(9) // nobody waits for it any more
	p.Close()   // the connection is lost
	// Output:
	// request 2 Satisfied
	// request 0 Satisfied
	// request 1 Closed
}

// An operation under several keys: a fetch from several partitions, which waits for
// enough bytes in all of them together.
func ExamplePurgatory_Park() {
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[int](w)

	bytes := map[int]int{}
	enough := func() bool { return bytes[1]+bytes[2]+bytes[3] >= 1000 }
	fetch, err := p.Park(time.Minute, enough, func(o purgatory.Outcome) { fmt.Println("fetch", o) }, 1, 2, 3)
	if err != nil {
		fmt.Println(err) // of a wheel that was stopped, or has too much pending
		return
	}
	for partition := 1; partition <= 3; partition++ {
		bytes[partition] += 600
		fmt.Println(p.Notify(partition))
	}
	fmt.Println(fetch.Outcome(), p.Stats().Keys)
	// Output:
	// 0
	// fetch Satisfied
	// 1
	// 0
	// Satisfied 0
}

// Writers wait until what they have written is committed. One number rises for all of
// them.
func ExampleThreshold() {
	w := timingwheel.New()
	defer w.Stop()
	committed := purgatory.NewThreshold[int64](w)

	for _, offset := range []int64{12, 10, 11} {
		committed.Park(offset, time.Minute, func(o purgatory.Outcome) { fmt.Println(offset, o) })
	}
	fmt.Println(committed.Advance(11), "ended")
	fmt.Println(committed.Await(context.Background(), 11, time.Minute))
	fmt.Println(committed.Await(context.Background(), 12, 10*time.Millisecond))
	committed.Close()
	// Output:
	// 10 Satisfied
	// 11 Satisfied
	// 2 ended
	// <nil>
	// purgatory: expired: context deadline exceeded
	// 12 Closed
}
