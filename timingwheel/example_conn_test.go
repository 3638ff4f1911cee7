package timingwheel_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// session is a connection that is closed when nothing has come for a minute. Its reader
// pushes the end back, and anybody may close it.
type session struct {
	conn net.Conn
	idle timingwheel.Timeout // assigned before anybody else has the session, and never again
}

// newSession assigns idle once. The function does not use it: it may run before it is
// assigned.
func newSession(w *timingwheel.TimingWheel, conn net.Conn) (*session, error) {
	s := &session{conn: conn}
	var err error
	s.idle, err = w.Schedule(time.Minute, func() { conn.Close() })
	return s, err
}

// echo sends back what it reads.
func (s *session) echo() {
	defer s.close()
	buffer := make([]byte, 1024)
	for {
		n, err := s.conn.Read(buffer)
		if err != nil || !s.idle.Reset(time.Minute) { // false: the session is being closed
			return
		}
		s.conn.Write(buffer[:n])
	}
}

func (s *session) close() {
	s.idle.Cancel()
	s.conn.Close()
}

// A Timeout is a value. Reset and Cancel do not write it, so any number of goroutines may
// call them on one field, as long as nobody assigns the field. So push back by Reset, and not
// by a new Schedule. This costs nothing but the 24 bytes of the field. Use a [Timer], 32
// bytes more, for a function that is to be armed again after it has run: its Reset does that,
// too. A [Group], 96 bytes more for each function, is for functions that are added while
// others are ended.
func ExampleTimeout() {
	w := timingwheel.New(timingwheel.WithManualClock(time.Unix(0, 0))) // so that the minutes pass at once
	defer w.Stop()
	client, server := net.Pipe()
	s, err := newSession(w, server)
	if err != nil {
		fmt.Println(err)
		return
	}
	go s.echo()
	answer := make([]byte, 3)
	for _, word := range []string{"one", "two"} {
		w.Advance(50 * time.Second)
		client.Write([]byte(word))
		io.ReadFull(client, answer)
		fmt.Printf("%s\n", answer)
	}
	w.Advance(time.Minute)
	_, err = client.Read(answer) // until the session is closed
	fmt.Println(err)
	// Output:
	// one
	// two
	// EOF
}

// Where the connection is to be used after it was idle, the function ends the reads that
// wait, by a deadline that has come.
func ExampleTimeout_Reset_deadline() {
	w := timingwheel.New()
	defer w.Stop()
	client, server := net.Pipe()
	defer client.Close()
	idle, _ := w.Schedule(20*time.Millisecond, func() { server.SetReadDeadline(time.Now()) })
	idle.Reset(20 * time.Millisecond) // traffic: a third of what server.SetReadDeadline costs
	_, err := server.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded))
	// Output: true
}
