// Package unread passes on the fields of stored JSON objects that this version does not know, so that
// a later version can add one while programs of this version work beside it.
package unread

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Fields are fields of an object, as the text of an object that has no others; "" for none.
type Fields string

// Of returns the fields of an object that T has no field for. There are none if the text is no object.
func Of[T any](object []byte) Fields {
	if len(object) == 0 { // as for each new job
		return ""
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil {
		return ""
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(all, name)
	}
	if len(all) == 0 {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // they were read
	}
	return Fields(text)
}

// AddTo returns an object with these fields. They are none of its own.
func (f Fields) AddTo(object []byte) []byte {
	switch {
	case f == "":
		return object
	case string(object) == "{}":
		return []byte(f)
	}
	return append(append(object[:len(object)-1], ','), f[1:]...)
}
