//go:build unix

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// restoreBackups restores an older backup below workers that live, and that have learnt another
// limit since. No job is added between a backup and its restore, since none of these would be
// there any more. What ran meanwhile runs again: that is the promise.
func (w *world) restoreBackups() {
	w.r.CheckTwice = false
	w.startAll()
	w.until(1, func(n int) {
		pause(2*time.Second, 2*time.Second)
		w.stop("producer")
		w.restoreBackup(filepath.Join(w.dir, fmt.Sprint("backup", n)))
		w.start("producer", "producer")
		w.r.Provoked++
		w.awaitGoingOn(func() {})
	})
}

// restoreBackup makes a backup with one limit, and restores it once the workers have obeyed
// another for a while. Both let all jobs run that come.
func (w *world) restoreBackup(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	nc := get(nats.Connect(w.url(), nats.MaxReconnects(-1)))
	defer nc.Close()
	q := get(durable.Open(ctx, get(jetstream.Connect(ctx, nc, jetstream.Existing()))))
	defer q.Close()
	must(q.SetLimit(ctx, "before", durable.Limit{Kind: kind, Running: concurrency}))
	must(jetstream.Backup(ctx, nc, dir))
	must(q.SetLimit(ctx, "before", durable.Limit{Kind: kind, Running: 2 * concurrency}))
	pause(time.Second, time.Second)
	js := get(nc.JetStream())
	must(js.DeleteStream("TW_default_0"))
	// A server that stands still for five seconds gives up. It may also have finished, and its answer
	// be late: then the name is in use (10130).
	for {
		err := jetstream.Restore(ctx, nc, dir)
		if err == nil || strings.Contains(err.Error(), "(10130)") {
			return
		}
		if ctx.Err() != nil {
			must(err)
		}
		time.Sleep(time.Second)
	}
}
