// Package postgres keeps durable jobs in a table of PostgreSQL.
package postgres
