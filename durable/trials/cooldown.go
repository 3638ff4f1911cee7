//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

const (
	cooled  = "cooled"        // the kind whose handlers ask for a cooldown now and then, of its lanes
	coolFor = 5 * time.Second // each

	cooldownStored = 'z' // a cooldown is stored: the kind, the lane, and its end
)

// mayCool returns the error of an attempt that asks for a cooldown, nil for most. A process that is killed before it
// has seen the cooldown in the store writes no line.
func (p *process) mayCool(a *durable.Attempt) error {
	if a.Job.Kind != cooled || !p.Bouts || rand.N(60) > 0 {
		return nil
	}
	p.late.run(func() {
		ctx, cancel := context.WithTimeout(background, coolFor)
		defer cancel()
		for ; ctx.Err() == nil; sleep(ctx, 20*time.Millisecond) {
			all, _ := p.q.Paused(ctx)
			for _, one := range all {
				if one.Kind == a.Job.Kind && one.Lane == a.Job.Lane {
					p.l.write(cooldownStored, fmt.Sprintf("%s|%s|%d", one.Kind, one.Lane, one.Until.UnixNano()))
					return
				}
			}
		}
	})
	return durable.Cooldown(coolFor, errMeant)
}

// cooldown is one that was in the store at a time, and lasts until another, by one clock.
type cooldown struct {
	kind, lane string
	at, until  time.Time
}

func readCooldown(text string, at time.Time) cooldown {
	f := strings.Split(text, "|")
	return cooldown{f[0], f[1], at, time.Unix(0, number(f[2]))}
}

// countCooled counts what has begun later than a second after a cooldown was stored, and before its end.
func (b *book) countCooled(a *account, all []*bout) {
	a.Cooldowns = len(b.cooldowns)
	for _, c := range b.cooldowns {
		for _, one := range all {
			if one.kind == c.kind && one.lane == c.lane && one.begin.After(c.at.Add(time.Second+slack)) && one.begin.Before(c.until) {
				a.Broken.CooledAndRan++
			}
		}
	}
}
