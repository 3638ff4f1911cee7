// Package tickwheel has no code. The library is in the packages below it:
//
//   - [github.com/tickwheel/tickwheel/timingwheel] schedules delayed functions on hierarchical timing
//     wheels, with the names and contracts of package time. Start here.
//   - [github.com/tickwheel/tickwheel/purgatory] parks operations until a condition holds or a deadline
//     comes.
//   - [github.com/tickwheel/tickwheel/dropin/time] and [github.com/tickwheel/tickwheel/dropin/context] have all names
//     of the standard packages: change one import.
//   - [github.com/tickwheel/tickwheel/delayqueue] is the queue below the wheels: its elements can be
//     taken once their time has come.
//
// Module github.com/tickwheel/tickwheel/durable keeps jobs that survive a crash.
package tickwheel
