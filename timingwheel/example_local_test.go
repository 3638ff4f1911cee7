package timingwheel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
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
	pool := timingwheel.NewPool(1, 100, timingwheel.FullWait)
	w := timingwheel.New(timingwheel.WithExecutor(pool))
	encoders := timingwheel.NewLocal(pool, func(*timingwheel.Worker) *json.Encoder { return newEncoder() }, nil)
	conns := timingwheel.NewLocal(pool, func(k *timingwheel.Worker) *conn {
		fmt.Println("worker", k.ID(), "connects")
		return dial()
	}, (*conn).close)

	for i := range 3 {
		pool.Schedule(w, time.Duration(i)*time.Millisecond, func(k *timingwheel.Worker) {
			report(*encoders.Get(k), i)
			(*conns.Get(k)).insert("a session has expired")
		})
	}
	w.Shutdown(context.Background())
	pool.Close() // removes the values
	// Output:
	// worker 0 connects
	// a connection is closed after 3 rows
}
