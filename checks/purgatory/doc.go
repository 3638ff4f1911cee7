// Package purgatory checks that the life of an operation of a purgatory is
// linearizable: whatever goroutines do to it at the same time, there is an order of all
// that in which it is parked, ends once, in one way that was possible just then, and
// everybody sees the end that it had; and that no event is lost: once all is quiet, no
// operation is parked whose condition holds.
//
// It checks likewise the line of those who wait under one key: whatever calls of Notify and
// NotifyN there are at the same time, they satisfy as many as they say, in the order of
// parking.
//
// The tests record what real goroutines do, and have github.com/anishathalye/porcupine
// look for such an order. It is a module of its own for the sake of that import, and has
// nothing but tests.
package purgatory
