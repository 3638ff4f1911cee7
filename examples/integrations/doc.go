// Package integrations holds the examples that use the library beside another: a cron
// parser, a goroutine pool, NATS and PostgreSQL. They are a module of their own for the
// sake of these imports.
package integrations
