// Package parking is what package purgatory and package timingwheel agree on: how a wheel
// tells a parked operation that its deadline has come, or that the wheel was stopped.
package parking

// Op is an operation that a wheel holds until a deadline. Its methods are called with a
// lock of the wheel held. They must be short, never block, call nothing of the wheel's
// and run no code of a user.
type Op interface {
	// Expire says that the deadline has come. It returns what is left to do, and nil for
	// what is not. Leave is run by the wheel itself: nothing of a user's may hold it up.
	// Done is run by the wheel's executor. The two may run at the same time.
	Expire(Held) (leave, done func())

	// Stop says that the wheel was stopped. It returns what is left to do, nil for
	// nothing, and who is to run it. That one is called with the lock held, too.
	Stop(Held) (rest func(), by Executor)
}

// Executor is a timingwheel.Executor, which this package cannot import.
type Executor interface {
	Execute(tasks []func())
}

// Held says that a lock of the wheel is held. As its name cannot be written outside this
// module, nobody else can implement Op.
type Held struct{}
