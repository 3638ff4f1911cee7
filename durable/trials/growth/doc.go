// Package growth has no code but tests: a simulation of how a queue of several partitions
// keeps up, in virtual time, on a timing wheel whose clock stands still until it is moved. A
// partition is one server that makes one commit at a time; jobs are spread over partitions at
// random.
//
//	go test ./growth -v -table            # the table in durable/RESULTS.md
//	go test ./growth -v -table -sync 1ms  # on a slower disk; -life and -bytes are figures, too
package growth
