//go:build unix

// Command trials harms what runs durable jobs and measures it, on real servers.
//
//	go run . chaos -for 10m              # each fault for ten minutes
//	go run . chaos/cluster,worker        # two of them
//	go run . limits                      # the goals of limits
//	go run . fleet                       # workers of different kinds, beside one another
//	go run . bench                       # JetStream, embedded and on three nodes
//	go run . bench/pending -n 10000000
//	go run . beside/insert,late          # durable jobs on PostgreSQL, beside River and a poller
//	go run . beside/late -only River     # one of them, beside another process with another one
//	go run .                             # lists all
//
// A fault of chaos happens to processes, which are this program again, on loopback ports. Each
// writes what it is promised and what it does to a ledger on disk. When the time is over one
// process runs what is left, as long as that takes. Then the ledgers prove that no job was
// lost, that none ran that was canceled, that none ran early, and that the limits held. They
// prove that a signal that was answered true was seen by the next attempt, and that the last
// value of each debounced key was seen by a run that began after it was added. Where clients of several servers use
// the same keys, each answer was right at some moment of its call.
//
// The rest measures, with every write synced, and prints the tables of durable/RESULTS.md.
// Figures of one run belong together; those of another day, or of a busy machine, do not.
//
// The exit status is 1 if a promise was broken or a goal of limits missed. The ledgers of a fault that has broken a
// promise stay, in a directory that is named. All directories are below TMPDIR.
//
// In package setclock are clocks of processes that can be set. Packages growth and protocol have
// tests alone: a simulation of how a queue grows, and a model of the steps that the JetStream
// engine takes.
package main
