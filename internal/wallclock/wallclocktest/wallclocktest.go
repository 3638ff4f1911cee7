// Package wallclocktest makes package wallclock give notice, for tests of its users.
package wallclocktest
