package timingwheel

import "time"

// channel is the sending side of a Timer with a channel.
//
// The value is sent while shard.mu is held, and taken back so as well. So when Stop
// or Reset have the lock, the event either is pending, or has been sent and can be
// taken out of the channel: there is nothing between, and no stale value. (With a
// send outside the lock there would be: a sender that is held up between the wheel
// and the channel.)
type channel struct {
	timer Timer // its f is due
	c     chan time.Time

	relay *relay // has taken over since the wheel was stopped; nil if not pending. Guarded by shard.mu
}

func newChannel() *channel {
	c := &channel{c: make(chan time.Time, 1)}
	c.timer = Timer{C: c.c, f: c.due, channel: c}
	return c
}

// The methods that follow are called with shard.mu held.

// due is the wheel's own task: it sends the time, or moves to package time if the
// wheel was stopped before.
func (c *channel) due() {
	if s := c.timer.shard; s.closed {
		c.moveToTime(time.Until(s.clock.time(s.arena.Deadline(c.timer.handle.index))))
		return
	}
	c.send()
}

// send never blocks: whoever starts the timer has emptied the channel before.
func (c *channel) send() {
	select {
	case c.c <- time.Now():
	default:
	}
}

// takeBack makes sure that nothing sent so far is received from now on, and that
// package time will send nothing, and reports whether there was something.
func (c *channel) takeBack() bool {
	active := c.relay.stop()
	select {
	case <-c.c:
		return true
	default:
		return active
	}
}

// moveToTime sends the time d from now, on a wheel that is stopped.
func (c *channel) moveToTime(d time.Duration) {
	c.relay = c.timer.shard.relay(d, c.send)
}
