// Package timingwheel schedules very many delayed functions: request timeouts,
// idle connections, sessions, retries, leases, delayed messages.
package timingwheel
