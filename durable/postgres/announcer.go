package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// announcer is the way of announcements: it wakes each Fetch of this engine at once, and those of other
// processes by NOTIFY, and it receives for a Fetch those of others. It passes a notice that it receives on
// to notices.
//
// Each notifier, and each listener, has a lock of its own. No job depends on an announcement:
// polls find each job without one.
type announcer struct {
	*db
	dialer   dialer
	notices  *notices
	name     string    // in the announcements that it sends
	fetches  *notifier // wakes each Fetch of this engine
	outgoing *notifier // wakes sendAnnouncements

	pollEvery time.Duration // the pause of a Fetch that nothing wakes
}

// announce wakes each Fetch of this engine, and soon those of other processes.
func (an *announcer) announce(a announcement) {
	an.fetches.wakeAll(a)
	an.outgoing.wakeAll(a)
}

// announceSoon announces the stored jobs that are due soon. Polls find later jobs in time.
func (an *announcer) announceSoon(recs []driver.Record, refs []driver.Ref, errs []error) {
	soon := an.now().Add(window)
	a := announcementOf(nil, false)
	for i := range recs {
		switch r := &recs[i]; {
		case errs[i] != nil:
		case r.MaxWait > 0, r.Signals && r.OnKey != driver.KeyRefuse, // MaxWait may be over, or a signal have come: the job is due earlier then
			mayReplace(r) && refs[i] != an.refOf(idOf(r)): // it has gone into a job that is due
			a.add(r.Kind, time.Time{})
		case r.Due.Before(soon):
			a.add(r.Kind, r.Due)
		}
	}
	if len(a.kinds) > 0 {
		an.announce(a)
	}
}

// announceTx has a commit announce kinds. A job that is due soon may be long due by then, if the
// transaction takes long.
func (an *announcer) announceTx(kinds []string) asked {
	return asked{text: an.notifyTx, args: []any{an.schema, announcementOf(kinds, true).encode("")}}
}

// sendAnnouncements sends them to other processes, until closing ends: then it sends the rest at once, and ends.
// Polls find the jobs whose announcement could not be sent.
func (an *announcer) sendAnnouncements(closing context.Context, l *listener) {
	for last := false; !last; {
		select {
		case <-closing.Done():
			last = true
		case <-l.woken:
		}
		a, ok := l.take()
		if !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(an.closed, time.Second)
		err := an.do(ctx, an.notify, []any{an.schema, a.encode(an.name)}, relaxed)
		cancel()
		sleep(closing, announceEvery)
		if err != nil && !last { // idle workers poll seldom: it is sent once the server answers
			sleep(closing, announceAgain)
			l.wake(a)
		}
	}
}

// receive wakes a listener when a process announces something, until ctx ends. It opens a
// connection of its own: the pool keeps all of its connections, and a proxy may give one of them
// to several clients. While it has no connection, polls find the jobs.
func (an *announcer) receive(ctx context.Context, l *listener) {
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
		if c, err := an.dialer.dialListener(ctx); err == nil {
			began := time.Now()
			an.receiveOn(ctx, c, l)
			if time.Since(began) > time.Minute {
				pause = 100 * time.Millisecond
			}
			an.dialer.hangUp(c)
		}
		sleep(ctx, pause)
	}
}

// receiveOn passes announcements and notices on until the connection fails.
func (an *announcer) receiveOn(ctx context.Context, c *pgx.Conn, l *listener) {
	if err := an.listenOn(ctx, c); err != nil {
		return
	}
	l.wake(announcement{old: true}) // jobs may have been announced before
	ctx, cancel := context.WithCancel(ctx)
	var echoes sync.WaitGroup
	defer echoes.Wait()
	defer cancel()
	defer l.arrival.ended()
	echoes.Go(func() { an.sendEchoes(ctx, l) })
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			return
		}
		if n.Channel == an.echoChannel() {
			an.echoed(l, n.Payload)
			continue
		}
		if n.Channel != an.schema { // a hook of the pool listens there
			if other := an.pool.Config().ConnConfig.OnNotification; other != nil {
				other(c.PgConn(), n)
			}
			continue
		}
		if notice, ok := decodeNotice(n.Payload); ok {
			an.notices.deliver(notice)
			if notice.FlowControl {
				l.wake(recalled)
			}
			continue
		}
		if a, by := decodeAnnouncement(n.Payload); by != an.name {
			l.wake(a)
		}
	}
}
