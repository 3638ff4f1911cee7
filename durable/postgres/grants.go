package postgres

import (
	_ "embed"
	"strings"
)

//go:embed grants.sql
var grants string

// Grants returns the statements that make three roles for a schema, see [WithSchema], and
// grant each of them only the rights that it needs: one that adds jobs, one that works,
// one that migrates. They are in grants.sql, whose comments say how it is used, for the
// schema "tickwheel". Grants panics on a name that WithSchema refuses.
func Grants(schema string) string {
	c := config{}
	WithSchema(schema)(&c)
	return strings.ReplaceAll(grants, "tickwheel", c.schema)
}
