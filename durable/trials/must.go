//go:build unix

package main

import (
	"context"

	"golang.org/x/sync/errgroup"
)

var background = context.Background()

// ended is the panic by which must ends a trial. All else that panics is a bug.
type ended struct{ err error }

// must ends the trial if err is not nil. It is for the goroutine that attempt or a group
// watches: a trial is a long list of steps, and none makes sense after one has failed.
func must(err error) {
	if err != nil {
		panic(ended{err})
	}
}

// get returns v, or ends the trial as must does.
func get[T any](v T, err error) T {
	must(err)
	return v
}

// attempt calls f, and returns the error by which must has ended it.
func attempt(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case ended:
			err = r.err
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// group runs functions on goroutines of their own. Its zero value is empty.
type group struct{ errgroup.Group }

// run calls f on a goroutine. In f, must ends f alone.
func (g *group) run(f func()) {
	g.Go(func() error { return attempt(f) })
}

// wait waits until all have returned, and ends the trial if one has failed.
func (g *group) wait() { must(g.Wait()) }
