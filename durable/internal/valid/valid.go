// Package valid says which texts and times a job may have.
package valid

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Farthest is the first moment beyond the year 9999, which many encodings cannot hold.
var Farthest = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// Time returns an error if a time is too far away.
func Time(due time.Time) error {
	if !due.Before(Farthest) {
		return fmt.Errorf("the time %v is beyond the year 9999", due)
	}
	return nil
}

// The largest that names are, and all of a job's Meta, in bytes.
const (
	maxName = 128
	maxMeta = 4 << 10
)

// Name returns what is wrong with a text that names something, in an error that calls it by what it
// is: it is empty, longer than so many bytes, or not printable. Each name of a user goes through this where
// it is given, since an engine makes other names of it, and a database refuses some texts.
func Name(what, text string, most int) error {
	if text == "" {
		return fmt.Errorf("%s is empty", what)
	}
	return OptionalName(what, text, most)
}

// OptionalName is Name of a text that may be empty.
func OptionalName(what, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%s has %d bytes, more than %d", what, len(text), most)
	case !Printable(text):
		return fmt.Errorf("%s %q is not printable", what, text)
	}
	return nil
}

// Meta returns what is wrong with the Meta of a job.
func Meta(meta map[string]string) error {
	size := 0
	for name, value := range meta {
		size += len(name) + len(value)
		switch {
		case name == "" || len(name) > maxName || !Printable(name):
			return fmt.Errorf("the name %.200q in Meta is not printable, of 1 to %d bytes", name, maxName)
		case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return fmt.Errorf("the value of %q in Meta is not UTF-8 without NUL", name)
		}
	}
	if size > maxMeta {
		return fmt.Errorf("Meta has %d bytes, more than %d", size, maxMeta)
	}
	return nil
}

// Printable reports whether a text is UTF-8 of printable characters.
func Printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
