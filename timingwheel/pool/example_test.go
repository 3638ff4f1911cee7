package pool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// conn stands for a connection to a database. It is not safe for concurrent use.
type conn struct{ rows int }

func dial() *conn                    { return new(conn) }
func (c *conn) insert(string)        { c.rows++ }
func (c *conn) close()               { fmt.Println("a connection is closed after", c.rows, "rows") }
func newEncoder() (e *json.Encoder)  { return json.NewEncoder(io.Discard) }
func report(e *json.Encoder, at int) { e.Encode(map[string]int{"at": at}) }

// Each worker has an encoder and a connection of its own, so that neither needs a lock.
func ExampleLocal() {
	p := pool.New(1, 100, pool.Wait)
	w := timingwheel.New(timingwheel.WithExecutor(p))
	encoders := pool.NewLocal(p, func(*pool.Worker) *json.Encoder { return newEncoder() }, nil)
	conns := pool.NewLocal(p, func(k *pool.Worker) *conn {
		fmt.Println("worker", k.ID(), "connects")
		return dial()
	}, (*conn).close)

	for i := range 3 {
		p.Schedule(w, time.Duration(i)*time.Millisecond, func(k *pool.Worker) {
			report(*encoders.Get(k), i)
			(*conns.Get(k)).insert("a session has expired")
		})
	}
	w.Shutdown(context.Background())
	p.Close() // removes the values
	// Output:
	// worker 0 connects
	// a connection is closed after 3 rows
}

// Two at a time, four wait, and the rest are given up: better not at all than late.
func ExampleNew() {
	discarded := 0
	p := pool.New(2, 4, pool.Discard(func(func()) { discarded++ }))
	w := timingwheel.New(timingwheel.WithExecutor(p))
	busy := make(chan bool)
	for range 10 {
		w.Schedule(time.Millisecond, func() { <-busy })
	}
	for w.Stats().Discarded < 4 {
		time.Sleep(time.Millisecond)
	}
	close(busy)
	w.Shutdown(context.Background())
	p.Close()
	fmt.Println("discarded:", discarded)
	// Output: discarded: 4
}
