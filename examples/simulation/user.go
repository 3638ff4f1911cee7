package main

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// user comes, clicks, and goes away without a word.
type user struct {
	s       *simulation
	session timingwheel.Timeout // ends the session
	last    time.Time           // of the clicks
	online  bool                // has a session
	gone    bool                // has had enough, which only the session's end shows

	click, expire func() // made once, rather than with each click
}

func newUser(s *simulation) *user {
	u := &user{s: s}
	u.click, u.expire = u.onClick, u.onExpire
	return u
}

func (u *user) login() {
	u.online, u.gone = true, false
	u.s.logins++
	u.s.online++
	u.session = u.s.after(u.s.limit, u.expire)
	u.onClick()
}

// onClick pushes the end of the session back. If the session has ended, the user has thought
// for too long, and has to log in again.
func (u *user) onClick() {
	switch {
	case !u.online:
		u.login()
		return
	case !u.session.Reset(u.s.limit):
		// The session ends on this tick: the wheel has handed on its end already, which
		// comes next. Had the user logged in now, it would end the new session.
		u.s.after(0, u.click)
		return
	}
	u.s.clicks++
	u.last = u.s.wheel.Now()
	if u.s.r.IntN(clicks) == 0 {
		u.gone = true
		return
	}
	u.s.after(u.s.about(betweenTwo), u.click)
}

// onExpire ends the session. It checks that it is called when it has to be: not before the
// limit has passed, and within a tick after it.
func (u *user) onExpire() {
	idle := u.s.wheel.Now().Sub(u.last)
	if idle < u.s.limit || idle >= u.s.limit+tick {
		u.s.wrong++
	}
	u.online = false
	u.s.expired++
	u.s.online--
	if u.gone {
		u.s.after(u.s.away(), u.login)
	}
}
