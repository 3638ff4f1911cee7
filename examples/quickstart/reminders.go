package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// reminders are what was read: some pending on the wheel, some printed.
type reminders struct {
	wheel *timingwheel.TimingWheel
	done  chan struct{} // closed when all is read and all has fired

	mu      sync.Mutex // guards what follows, and keeps lines of output whole
	out     io.Writer
	pending map[*reminder]bool
	late    []time.Duration // of those that have fired
	reading bool
}

type reminder struct {
	message string
	due     time.Time
}

func newReminders(out io.Writer) *reminders {
	return &reminders{
		wheel:   timingwheel.New(),
		done:    make(chan struct{}),
		out:     out,
		pending: map[*reminder]bool{},
		reading: true,
	}
}

// read schedules the lines of input and reports bad ones. It returns true if there were
// none.
func (l *reminders) read(name string, input io.Reader, stderr io.Writer) (ok bool) {
	ok = true
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 1<<20)
	number := 0
	for lines.Scan() {
		number++
		delay, message, err := parse(lines.Text())
		if err == nil && message != "" {
			err = l.schedule(delay, message)
		}
		if err != nil {
			fmt.Fprintf(stderr, "%s:%d: %v\n", name, number, err)
			ok = false
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintf(stderr, "%s:%d: %v\n", name, number+1, err)
		ok = false
	}
	return ok
}

// parse returns an empty message for a line without content.
func parse(line string) (delay time.Duration, message string, err error) {
	words := strings.Fields(line)
	if comment := slices.IndexFunc(words, func(w string) bool { return w[0] == '#' }); comment >= 0 {
		words = words[:comment]
	}
	if len(words) == 0 {
		return 0, "", nil
	}
	delay, err = time.ParseDuration(words[0])
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("bad delay: %w", err)
	case delay < 0:
		return 0, "", fmt.Errorf("bad delay: %v is negative", delay)
	case len(words) == 1:
		return 0, "", errors.New("no message after the delay")
	}
	return delay, strings.Join(words[1:], " "), nil
}

func (l *reminders) schedule(delay time.Duration, message string) error {
	r := &reminder{message, time.Now().Add(delay)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.wheel.Schedule(delay, func() { l.fire(r) }); err != nil {
		return err
	}
	l.pending[r] = true
	return nil
}

// fire runs on the wheel's executor.
func (l *reminders) fire(r *reminder) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	late := now.Sub(r.due)
	l.late = append(l.late, late)
	fmt.Fprintf(l.out, "%s  %s  (%v late)\n", now.Format("15:04:05.000"), r.message, round(late))
	delete(l.pending, r)
	l.finishIfIdle()
}

// allRead says that no more reminders will come.
func (l *reminders) allRead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = false
	l.finishIfIdle()
}

func (l *reminders) finishIfIdle() {
	if !l.reading && len(l.pending) == 0 {
		close(l.done)
	}
}

// summary stops the wheel and prints how late the reminders were.
func (l *reminders) summary() {
	l.wheel.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "%d fired", len(l.late))
	if n := len(l.late); n > 0 {
		slices.Sort(l.late)
		fmt.Fprintf(l.out, "; late by min %v, median %v, p99 %v, max %v",
			round(l.late[0]), round(l.late[n/2]), round(l.late[n*99/100]), round(l.late[n-1]))
	}
	fmt.Fprintln(l.out)
}

// interrupt stops the wheel and prints what has not run.
func (l *reminders) interrupt() {
	l.wheel.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	left := slices.SortedFunc(maps.Keys(l.pending), func(a, b *reminder) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.message, b.message))
	})
	fmt.Fprintf(l.out, "interrupted: %d fired, %d not\n", len(l.late), len(left))
	for _, r := range left {
		fmt.Fprintf(l.out, "not run: %s  (due in %v)\n", r.message, round(time.Until(r.due)))
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
