// Package testservers is where tests of durable's modules find servers. It promises nothing to users,
// and may change in any version. Package pgserver starts servers of PostgreSQL, and its program
// serve starts one for tests of other modules. Package ports keeps ports for servers that stop and
// start again. Package busy gives tests more time on a busy machine.
//
// This module depends on no server and no client. A NATS server is both to build and to run, so
// jetstream/internal/natsserver starts those, beside the tests that use them.
package testservers
