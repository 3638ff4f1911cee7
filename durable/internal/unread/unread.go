// Package unread passes on the fields of stored JSON objects that this version does not know, so that
// a later version can add one while programs of this version work beside it.
package unread

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Fields are fields of an object, by name.
type Fields map[string]json.RawMessage

// Of returns the fields of an object that T has no field for. They are nil if there are none, or if
// the text is no object.
func Of[T any](object []byte) Fields {
	var all Fields
	if json.Unmarshal(object, &all) != nil {
		return nil
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(all, name)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// AddTo returns an object with these fields. They are none of its own.
func (f Fields) AddTo(object []byte) []byte {
	if len(f) == 0 {
		return object
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // they were read
	}
	if len(object) == len("{}") {
		return text
	}
	return append(append(object[:len(object)-1], ','), text[1:]...)
}
