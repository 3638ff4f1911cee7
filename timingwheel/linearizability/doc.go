// Package linearizability checks that [timingwheel.Keyed] is linearizable: whatever
// goroutines do to one key at the same time, and whenever its functions start,
// there is an order of all that in which each has the outcome that it would have
// alone, and which no one could tell from what he saw himself to be wrong.
//
// The tests record what real goroutines do, with a call and a return for each
// operation, and have github.com/anishathalye/porcupine look for such an order. It is
// a module of its own for the sake of that import, and has nothing but tests.
package linearizability
