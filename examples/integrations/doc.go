// Package integrations holds the examples that use the library beside another: a cron
// parser, a goroutine pool, NATS and PostgreSQL.
package integrations
