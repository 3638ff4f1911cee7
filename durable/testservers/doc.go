// Package testservers is the place for what the tests of durable's engines and tools need of a
// machine. It promises nothing to users, and may change in any version. Package pgserver starts
// servers of PostgreSQL, and its program serve starts one for tests of other modules. Package ports
// keeps ports for servers that stop and start again. Package busy gives tests more time on a busy machine.
// The module asks for no server and no client, so the NATS servers, which need one, are started by
// jetstream/internal/natsserver, beside the only tests that use them.
package testservers
