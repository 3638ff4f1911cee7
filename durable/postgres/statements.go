package postgres

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The statements are files, written for the schema "tickwheel".
//
//go:embed sql/*.sql
var files embed.FS

// statements are those of one schema.
type statements struct {
	insert, known, fetch, claim, finish, release, cancel, move, redrive, lookup, get, scan,
	work, beat, leave, sweep, expire, notify string
}

func newStatements(schema string) statements {
	s := func(name string) string { return statement(name, schema) }
	return statements{
		insert: s("insert"), known: s("known"), fetch: s("fetch"), claim: s("claim"), finish: s("finish"),
		release: s("release"), cancel: s("cancel"), move: s("move"), redrive: s("redrive"),
		lookup: s("lookup"), get: s("get"), scan: s("scan"), work: s("work"), beat: s("beat"),
		leave: s("leave"), sweep: s("sweep"), expire: s("expire"), notify: s("notify"),
	}
}

// statement reads a file, for a schema.
func statement(name, schema string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is in the program
	}
	return strings.ReplaceAll(string(text), "tickwheel.", pgx.Identifier{schema}.Sanitize()+".")
}
