package postgres

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed grants.sql
var grants string

// Grants returns the statements that make three roles for a schema, see [WithSchema], and
// grant each of them only the rights that it needs: one that adds jobs, one that works,
// one that migrates. They are in grants.sql, whose comments say how it is used, for the
// schema "tickwheel". Grants panics on a name that WithSchema refuses, and on one of more than 55 bytes.
func Grants(schema string) string {
	c := config{}
	WithSchema(schema)(&c)
	// The server cuts a role's name off after 63 bytes: the three would be one role, with all rights.
	if len(schema)+len("_migrate") > 63 {
		panic(fmt.Sprintf("postgres: Grants(%q): the roles' names would have more than 63 bytes", schema))
	}
	return strings.ReplaceAll(grants, "tickwheel", c.schema)
}
