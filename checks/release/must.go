package main

import "fmt"

// ended is the panic by which must ends a command. All else that panics is a bug.
type ended struct{ error }

// must ends the command if err is not nil: attempt returns the error. A command is a long list
// of steps, none of which makes sense after one has failed. The log says which it was.
func must(err error) {
	if err != nil {
		panic(ended{err})
	}
}

// ensure ends the command with an error if ok is false.
func ensure(ok bool, format string, args ...any) {
	if !ok {
		must(fmt.Errorf(format, args...))
	}
}

// get returns v, or ends the command as must does.
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
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
