// Package keyed checks that [timingwheel.Keyed] is linearizable. Goroutines may
// do anything to one key at the same time, and its functions may start at any time. Then
// there must be an order of all these operations in which each has the outcome that it
// would have alone. The order must agree with what each goroutine has seen: an operation
// that ended before another began comes before it.
//
// The tests record what real goroutines do, with a call and a return for each operation,
// and have github.com/anishathalye/porcupine look for such an order. This is a module of
// its own because of that import, and has nothing but tests.
package keyed
